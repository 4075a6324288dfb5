"""Programs in which faults of procedures show: their values by proofgrad and by numpy.

Owns: the programs, how one is run and compared. Does not own: which faults are planted (procedure_faults.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from proofgrad import Context, Tensor, TinyJit
from proofgrad.core.tensor.runtime.realize import compiler

Program = tuple[Callable[[], Tensor], Callable[[], Any], str]  # values, by numpy, CHOICES


def _data(seed: int, *shape: int) -> Any:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def _conv(stride: int = 1, shape: tuple[int, ...] = (2, 4, 9, 9), out: int = 5) -> Program:
    x, w = _data(0, *shape), _data(1, out, shape[1], 3, 3)

    def by_numpy() -> Any:
        wide = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
        high, across = shape[2], shape[3]
        return sum(
            np.einsum("nchw,oc->nohw", wide[:, :, i : i + high : stride, j : j + across : stride], w[:, :, i, j])
            for i in range(3) for j in range(3)
        )  # fmt: skip

    return lambda: Tensor(x).conv2d(Tensor(w), padding=1, stride=stride), by_numpy, ""


def _product(m: int, k: int, n: int, choices: str = "") -> Program:
    a, b = _data(0, m, k), _data(1, k, n)
    return lambda: Tensor(a) @ Tensor(b), lambda: a @ b, choices


def _of(
    function: Callable[..., Tensor], by_numpy: Callable[..., Any], *arrays: Any, choices: str = ""
) -> Program:
    return lambda: function(*[Tensor(a) for a in arrays]), lambda: by_numpy(*arrays), choices


def _softmax(x: Any) -> Any:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def _rows_gradient() -> Program:
    positions = np.random.default_rng(2).integers(0, 700, 600)
    g, table = _data(0, 600, 8), _data(1, 700, 8)

    def gradient() -> Tensor:
        weights = Tensor(table)
        rows = weights[Tensor(positions.astype(np.int32))]
        return (rows * Tensor(g)).sum().gradient(weights)[0]

    def by_numpy() -> Any:
        found = np.zeros((700, 8), np.float32)
        np.add.at(found, positions, g)
        return found

    return gradient, by_numpy, ""


def _in_place() -> Program:
    a = _data(0, 6, 6)

    def run() -> Tensor:
        x = Tensor(a).realize()
        y = x + 1
        del x
        y = y.realize() * 3
        return (y - y.permute(1, 0)).contiguous()

    return run, lambda: (a + 1) * 3 - ((a + 1) * 3).T, ""


def _assigned() -> Program:
    a = _data(0, 1460, 1460)  # of small values none is written over another

    def run() -> Tensor:
        x = Tensor(a).contiguous().realize()
        x.assign(x + x.permute(1, 0)).realize()
        x.assign(x * 2 + 1).realize()
        return x

    return run, lambda: (a + a.T) * 2 + 1, ""


def _gradient_of_images() -> Program:
    shape, weights = (2, 16, 10, 10), _data(33, 16, 16, 3, 3)
    above = _data(34, 2, 16, 8, 8)

    def run() -> Tensor:
        x = Tensor(np.ones(shape, np.float32)).realize()
        return (x.conv2d(Tensor(weights)) * Tensor(above)).sum().gradient(x)[0]

    def by_numpy() -> Any:
        found = np.zeros(shape, np.float32)
        for i, j in np.ndindex(3, 3):
            found[:, :, i : i + 8, j : j + 8] += np.einsum(
                "nohw,oc->nchw", above, weights[:, :, i, j]
            )
        return found

    return run, by_numpy, ""


def _replayed(
    function: Callable[..., Tensor], by_numpy: Callable[..., Any], *arrays: Any
) -> Program:
    """The third call of a recorded function, which is a replay with other arguments than the recording."""

    def run() -> Tensor:
        jitted = TinyJit(function)
        for times in (3, 2, 1):
            found = jitted(*[Tensor(a * times).realize() for a in arrays])
        return found

    return run, lambda: by_numpy(*arrays), ""


def _replayed_in_place() -> Program:
    a, b = _data(18, 6, 6), _data(19, 6, 6)

    def run() -> Tensor:
        state, other = Tensor(a).contiguous().realize(), Tensor(b).contiguous().realize()

        @TinyJit
        def step(x: Tensor) -> Tensor:
            state.assign(state + x.permute(1, 0))
            other.assign(other * 2 + state)
            return (state @ other).contiguous() + x

        for k in range(4):
            found = step(Tensor(b * k).realize())
        return found + state * 3 + other

    def by_numpy() -> Any:
        state, other = a, b
        for k in range(4):
            state = state + (b * k).T
            other = other * 2 + state
        return state @ other + b * 3 + state * 3 + other

    return run, by_numpy, ""


def _several() -> Program:
    """Values computed in one run, some of them views of others, some computed before."""
    a, b, c = _data(20, 4, 6), _data(21, 4, 6), _data(22, 6, 4)

    def run() -> Tensor:
        x, y, z = Tensor(a).realize(), Tensor(b), Tensor(c).realize()
        seen = (x - y).realize()[1:3]
        one, two, three = x * 2 - y, (z @ x).sum(0), (y - z.permute(1, 0)) * seen.sum()
        Tensor.realize(one, two, three)
        return one - two * three + (three - one).permute(1, 0).sum(0, keepdim=True).sum()

    def by_numpy() -> Any:
        seen = (a - b)[1:3]
        one, two, three = a * 2 - b, (c @ a).sum(0), (b - c.T) * seen.sum()
        return one - two * three + (three - one).sum()

    return run, by_numpy, ""


def _drawn_over() -> Program:
    """Values that are written over while views and other Tensors of the old ones live."""
    a = _data(23, 5, 5)

    def run() -> Tensor:
        x = Tensor(a).contiguous().realize()
        old, part = x * 1 + 0, x[1:4]
        old.realize()
        kept = x.detach()
        y = (x * 2).realize()
        x.assign(x + 1).realize()
        return (y - x + old).contiguous() + part.sum() * kept.sum()

    def by_numpy() -> Any:
        return a * 2 - (a + 1) + a + a[1:4].sum() * a.sum()

    return run, by_numpy, ""


def _attention() -> Program:
    q, k, v = [_data(n, 2, 12, 8) for n in (40, 41, 42)]

    def run() -> Tensor:
        scores = Tensor(q) @ Tensor(k).permute(0, 2, 1) / 3
        return scores.softmax(-1) @ Tensor(v)

    return run, lambda: _softmax(q @ k.transpose(0, 2, 1) / 3) @ v, ""


def _step() -> Program:
    """A step of a small network with a bias, a rectifier, and a learning rate."""
    x, w, b, u = _data(43, 8, 10), _data(44, 10, 12), _data(45, 12), _data(46, 12, 3)

    def run() -> Tensor:
        weights, bias, last = [Tensor(a).realize() for a in (w, b, u)]
        loss = ((Tensor(x) @ weights + bias).relu() @ last).square().mean()
        grads = loss.gradient(weights, bias, last)
        for tensor, grad in zip((weights, bias, last), grads):
            tensor.assign(tensor - grad * 0.1)
        Tensor.realize(weights, bias, last)
        return weights.sum(0) * bias + last.sum()

    def by_numpy() -> Any:
        inner = x @ w + b
        positive = np.maximum(inner, 0)
        above = 2 * (positive @ u) / 24
        below = (above @ u.T) * (inner > 0)
        weights, bias = w - 0.1 * (x.T @ below), b - 0.1 * below.sum(0)
        return weights.sum(0) * bias + (u - 0.1 * (positive.T @ above)).sum()

    return run, by_numpy, ""


_X, _Y, _Z = _data(0, 37, 13), _data(3, 24, 40), _data(4, 6, 40)
_H = _data(5, 40).astype(np.float16)
_I = np.random.default_rng(30).integers(-50, 50, (9, 11)).astype(np.int32)
_POSITIONS = np.random.default_rng(31).integers(0, 50, (400, 6)).astype(np.int32)


def _by_position(x: Any, i: Any) -> Any:
    found = np.zeros((50, 6), np.float32)
    np.add.at(found, (i, np.arange(6)), x)
    return found


_LONG = _data(6, 1 << 17)
PROGRAMS: dict[str, Program] = {
    "product": _product(20, 40, 36),
    "odd tiles": _product(20, 40, 36, "tile=3x2x8 staged=rows+columns"),
    "packed": _product(64, 40, 64, "tile=8x2x8 packed=on staged=none"),
    "wide tiles": _product(21, 24, 40, "tile=4x2x8 staged=none depth=2"),
    "blocks of a product": _product(2, 64, 48, "reduction_block=8"),
    "convolution": _conv(),
    "strided": _conv(2, (1, 3, 17, 17), 16),
    "window in the padding": _conv(1, (2, 3, 3, 1), 16),
    "softmax": _of(lambda x: x.softmax(), _softmax, _data(7, 6, 37)),
    "largest": _of(lambda x: x.max(1), lambda x: x.max(1), _data(8, 7, 33) - 5),
    "largest of all": _of(lambda x: x.max(), lambda x: x.max(), _data(9, 64) - 5),
    "rows": _of(lambda x: x.sum(0), lambda x: x.sum(0), _data(10, 512, 1024)),
    "rows in blocks": _of(lambda x: x.sum(0), lambda x: x.sum(0), _data(10, 64, 96), choices="reduction_block=8"),
    "long sum": _of(lambda x: x.sum(), lambda x: x.sum(), _LONG),
    "largest of many": _of(lambda x: x.max(), lambda x: x.max(), _LONG - 9),
    "centred": _of(lambda x: (x - x.sum() / (1 << 17)).contiguous(), lambda x: x - x.mean(), _LONG),
    "elementwise": _of(lambda x: x * 2 + 1, lambda x: x * 2 + 1, _X),
    "turned": _of(lambda x: x.permute(1, 0) + 1, lambda x: x.T + 1, _Y),
    "backwards": _of(lambda x: x[:, ::3].flip(1) + 0, lambda x: x[:, ::3][:, ::-1], _Y),
    "padded": _of(lambda x: x.pad(((3, 3),)).exp(), lambda x: np.exp(np.pad(x, 3)), _data(11, 10)),
    "half": _of(lambda x, y: x.maximum(y) * 2, lambda x, y: np.maximum(x, y) * 2, _H, _H[::-1].copy()),
    "half sum": _of(lambda x: (x * x).exp2() + 1, lambda x: np.exp2(x * x) + 1, _H),
    "short sum": _of(lambda x: x.sum(1), lambda x: x.sum(1), _data(12, 5, 7)),
    "zeros": _of(lambda x: 1 / x.sum(1), lambda x: 1 / (x.sum(1) + 0.0), np.array([[-0.0] * 4, [1] * 4], np.float32)),
    "two": _of(lambda x, y: (x * 2).contiguous() - (y * 3).contiguous(), lambda x, y: x * 2 - y * 3, _X, _X[::-1].copy()),
    "sum of products": _of(
        lambda x, y: (x * y + x * x).sum(1), lambda x, y: (x * y + x * x).sum(1), _Z, _data(13, 6, 40)
    ),
    "masked": _of(
        lambda x, y: (x > 0.3).where(x * y, 0.0).sum(1), lambda x, y: np.where(x > 0.3, x * y, 0).sum(1), _Z, _data(13, 6, 40)
    ),
    "norm": _of(
        lambda x: (x - x.mean(1, keepdim=True)) / (x.var(1, keepdim=True, correction=0) + 1e-5).sqrt(),
        lambda x: (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5), _Z,
    ),
    "two rows": _of(
        lambda x: x.exp().sum(1) + x.pad(((0, 0), (0, 8))).exp().max(1),
        lambda x: np.exp(x).sum(1) + np.maximum(np.exp(x).max(1), 1), _Z,
    ),
    "three kernels": _of(
        lambda x, y: (x @ y).exp().sum(0) - (x @ y).sum(1),
        lambda x, y: np.exp(x @ y).sum(0) - (x @ y).sum(1), _data(14, 16, 16) / 4, _data(15, 16, 16) / 4,
    ),
    "gradient by position": _rows_gradient(),
    "in place": _in_place(),
    "assigned": _assigned(),
    "running sum": _of(lambda x: x.cumsum(0), lambda x: np.cumsum(x), _data(16, 64)),
    "batches": _of(lambda x, y: x @ y, lambda x, y: x @ y, _data(17, 3, 20, 24), _data(18, 3, 24, 16)),
    "counted": (lambda: (Tensor.arange(8) % 7).contiguous() * 1, lambda: np.arange(8) % 7, ""),
    "waves": _of(lambda x: x.sin() + x.exp2() - (x * x + 1).log2(), lambda x: np.sin(x) + np.exp2(x) - np.log2(x * x + 1), _X),
    "large angles": _of(lambda x: x.sin(), lambda x: np.sin(x.astype(np.float64)).astype(np.float32), _X * 1e6),
    "ends": _of(
        lambda x: x.exp().cat(x.abs().log2()), lambda x: np.concatenate([np.exp(x), np.log2(abs(x))]),
        np.tile(np.array([np.nan, np.inf, -np.inf, 1e-40, 2.5], np.float32), 60),
    ),
    "far remainder": _of(lambda x, y: x.fmod(y), lambda x, y: np.fmod(x, y), np.abs(_X) * 5e8 + 5e8, _X * 0 + 3),
    "remainder": _of(lambda x, y: x.fmod(y), lambda x, y: np.fmod(x, y), _X * 99, _X[::-1].copy()),
    "integers": _of(
        lambda x, y: (x // 3 + y % 5) * (x ^ y) - (x & 7).sum(1, keepdim=True),
        lambda x, y: (x // 3 + y % 5) * (x ^ y) - (x & 7).sum(1, keepdims=True), _I, _I[::-1].copy(),
    ),
    "positions": _of(
        lambda x, i: Tensor.zeros(50, 6).scatter_reduce(0, i, x, "sum"), _by_position, _data(29, 400, 6), _POSITIONS,
    ),
    "gradient of images": _gradient_of_images(),
    "gathered": _of(lambda x, i: x[i], lambda x, i: x[i], _Z, np.array([5, 0, 3, 3, 1], np.int32)),
    "doubles": _of(
        lambda x, y: x.sin() + (y * 1e5).cos() + (x * x + 0.5) ** y, lambda x, y: np.sin(x) + np.cos(y * 1e5) + (x * x + 0.5) ** y,
        _X.astype(np.float64) * 1e4, _X[::-1].astype(np.float64),
    ),
    "cosines": _of(lambda x: x.cos(), lambda x: np.cos(x.astype(np.float64)), _X * 100),
    "half products": _of(
        lambda x, y: x @ y, lambda x, y: x.astype(np.float32) @ y.astype(np.float32),
        _data(35, 16, 24).astype(np.float16), _data(36, 24, 32).astype(np.float16),
    ),
    "brain floats": _of(
        lambda x: (x.cast("bfloat16") * 2 + x.cast("bfloat16")).cast("float32") / 512, lambda x: x * 3 / 512, _X,
    ),
    "several views": _of(
        lambda x: (x.reshape(6, 8, 5).permute(2, 0, 1).flip(1).pad(((1, 0), (0, 2), (1, 1))) * 2).sum(2).reshape(48),
        lambda x: (np.pad(x.reshape(6, 8, 5).transpose(2, 0, 1)[:, ::-1], ((1, 0), (0, 2), (1, 1))) * 2).sum(2).reshape(48), _Z,
    ),
    "pooled": _of(
        lambda x: x.max_pool2d(3, stride=2) + x.avg_pool2d(3, stride=2),
        lambda x: np.array([[(lambda w: w.max() + w.mean())(x[0, 0, 2 * i : 2 * i + 3, 2 * j : 2 * j + 3]) for j in range(4)] for i in range(4)])[None, None], _data(37, 1, 1, 9, 9),
    ),
    "attention": _attention(),
    "step": _step(),
    "power": _of(lambda x, y: (x * x + 0.5) ** y, lambda x, y: (x * x + 0.5) ** y, _X, _X[::-1].copy()),
    "replayed": _replayed(
        lambda x, y, z: ((x @ y).contiguous() * 2 - (z @ x).contiguous()) @ y,
        lambda x, y, z: ((x @ y) * 2 - z @ x) @ y, _data(24, 6, 6), _data(25, 6, 6), _data(26, 6, 6),
    ),
    "replayed chain": _replayed(
        lambda x, y: ((((x @ y).contiguous() @ x).contiguous() - y).contiguous() @ y).sum(1),
        lambda x, y: ((x @ y @ x - y) @ y).sum(1), _data(27, 9, 9), _data(28, 9, 9),
    ),
    "replayed in place": _replayed_in_place(),
    "several": _several(),
    "written over": _drawn_over(),
    "choices": _of(
        lambda x: (x > 0).where((x > 0).where(x, x * 2) * 3, (x > 0).where(x, x * 5)),
        lambda x: np.where(x > 0, x * 3, x * 5), _X,
    ),
}  # fmt: skip


def ran(name: str, **asked: int) -> str:
    """What happens to a program: right, wrong, found (a check refuses it), refused (another error)."""
    values, by_numpy, choices = PROGRAMS[name]
    compiler().forget()
    settings = {"PLANS": 0, "CHECK": 0, "CHOICES": choices, "NUM_THREADS": 2, **asked}
    with Context(**settings):
        try:
            found = values().numpy()
        except Exception as error:  # noqa: BLE001  (what a fault makes of the compiler can be any)
            return "found" if type(error).__name__ in ("ProofError", "CheckError") else "refused"
    wanted = by_numpy()
    is_right = found.shape == np.shape(wanted) and np.allclose(
        found.astype(np.float64),
        np.asarray(wanted, np.float64),
        rtol=3e-3,
        atol=3e-3,
        equal_nan=True,
    )
    return "right" if is_right else "wrong"
