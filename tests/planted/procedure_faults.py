"""Faults planted in every procedure and in what launches its kernels: are the values wrong, and who finds it?

    python tests/planted/procedure_faults.py --seed 1 --live 100

Owns: the programs that make faults show, the run of one fault, the table. A fault is live if a program that compiles
computes another value than numpy, or dies. CHECK=1 and PROVE=1 must then both refuse a kernel of that program.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

if __name__ == "__main__":  # else the folder of tests is found already
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from planted.mutations import mutation, mutations  # noqa: E402
from planted.plant import Fault, in_a_fork, plant  # noqa: E402
from proofgrad import Context, Tensor  # noqa: E402
from proofgrad.core.tensor.realize import compiler  # noqa: E402

Program = tuple[Callable[[], Tensor], Callable[[], Any], str]  # values, by numpy, CHOICES


def _data(seed: int, *shape: int) -> Any:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def _conv(stride: int = 1, shape: tuple[int, ...] = (2, 4, 9, 9), out: int = 5) -> Program:
    x, w = _data(0, *shape), _data(1, out, shape[1], 3, 3)
    size = (shape[2] + 2 - 3) // stride + 1

    def by_numpy() -> Any:
        wide = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
        end = (size - 1) * stride + 1
        return sum(
            np.einsum("nchw,oc->nohw", wide[:, :, i : i + end : stride, j : j + end : stride], w[:, :, i, j])
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
    places = np.random.default_rng(2).integers(0, 700, 600)
    g, table = _data(0, 600, 8), _data(1, 700, 8)

    def gradient() -> Tensor:
        weights = Tensor(table)
        rows = weights[Tensor(places.astype(np.int32))]
        return (rows * Tensor(g)).sum().gradient(weights)[0]

    def by_numpy() -> Any:
        found = np.zeros((700, 8), np.float32)
        np.add.at(found, places, g)
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
    a = _data(0, 6, 6)

    def run() -> Tensor:
        x = Tensor(a).contiguous().realize()
        x.assign(x + x.permute(1, 0)).realize()
        x.assign(x * 2 + 1).realize()
        return x

    return run, lambda: (a + a.T) * 2 + 1, ""


_X, _Y, _Z = _data(0, 37, 13), _data(3, 24, 40), _data(4, 6, 40)
_H = _data(5, 40).astype(np.float16)
_LONG = _data(6, 1 << 17)
PROGRAMS: dict[str, Program] = {
    "product": _product(20, 40, 36),
    "odd tiles": _product(20, 40, 36, "tile=3x2x8 staged=rows+columns"),
    "packed": _product(64, 40, 64, "tile=8x2x8 packed=on staged=none"),
    "wide tiles": _product(21, 24, 40, "tile=4x2x8 staged=none depth=2"),
    "slabs of a product": _product(2, 64, 48, "slab=8"),
    "convolution": _conv(),
    "strided": _conv(2, (1, 3, 17, 17), 16),
    "window in the padding": _conv(1, (2, 3, 1, 1), 16),
    "softmax": _of(lambda x: x.softmax(), _softmax, _data(7, 6, 37)),
    "largest": _of(lambda x: x.max(1), lambda x: x.max(1), _data(8, 7, 33) - 5),
    "largest of all": _of(lambda x: x.max(), lambda x: x.max(), _data(9, 64) - 5),
    "rows": _of(lambda x: x.sum(0), lambda x: x.sum(0), _data(10, 512, 1024)),
    "rows in slabs": _of(lambda x: x.sum(0), lambda x: x.sum(0), _data(10, 64, 96), choices="slab=8"),
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
    "gated": _of(
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
    "gradient by place": _rows_gradient(),
    "in place": _in_place(),
    "assigned": _assigned(),
    "running sum": _of(lambda x: x.cumsum(0), lambda x: np.cumsum(x), _data(16, 64)),
    "batches": _of(lambda x, y: x @ y, lambda x, y: x @ y, _data(17, 3, 20, 24), _data(18, 3, 24, 16)),
    "counted": (lambda: (Tensor.arange(8) % 7).contiguous() * 1, lambda: np.arange(8) % 7, ""),
    "waves": _of(lambda x: x.sin() + x.exp2() - (x * x + 1).log2(), lambda x: np.sin(x) + np.exp2(x) - np.log2(x * x + 1), _X),
    "large angles": _of(lambda x: x.sin(), lambda x: np.sin(x.astype(np.float64)).astype(np.float32), _X * 1e6),
    "choices": _of(
        lambda x: (x > 0).where((x > 0).where(x, x * 2) * 3, (x > 0).where(x, x * 5)),
        lambda x: np.where(x > 0, x * 3, x * 5), _X,
    ),
}  # fmt: skip

_TILES = ("product", "odd tiles", "packed", "wide tiles", "convolution", "strided", "batches")
_SUMS = ("short sum", "softmax", "sum of products", "gated", "zeros", "product", "largest", "norm")
# Where faults are planted, and the programs that may show them.
WHERE: dict[str, Sequence[str]] = {
    "core/compile/split_reductions.py": ("long sum", "largest of many", "centred", "rows"),
    "core/compile/schedule.py": ("two", "three kernels", "norm", "centred", "softmax"),
    "core/compile/reuse.py": ("in place", "assigned", "two"),
    "core/compile/compiler.py": ("two", "long sum", "three kernels", "gradient by place", "in place"),
    "core/compile/plan.py": ("two", "three kernels", "centred", "in place"),
    "core/compile/lower.py": ("convolution", "turned", "backwards", "padded", "running sum", "softmax"),
    "core/compile/merging.py": ("turned", "elementwise", "batches", "softmax"),
    "core/compile/by_place.py": ("gradient by place",),
    "core/compile/axes.py": ("elementwise", *_TILES),
    "core/compile/nested_sums.py": ("softmax", "norm", "convolution"),
    "core/compile/kept_rows.py": ("softmax", "norm", "two rows"),
    "core/compile/slabs.py": ("slabs of a product", "rows in slabs", "rows"),
    "core/compile/tables.py": ("slabs of a product", "rows in slabs", "gradient by place"),
    "core/compile/staging.py": ("odd tiles", "strided", "packed"),
    "core/compile/pack.py": ("packed", "odd tiles"),
    "core/compile/contraction.py": _TILES,
    "core/compile/unroll.py": ("short sum", "product", "zeros", "largest"),
    "core/compile/index_width.py": ("elementwise", "gradient by place", "convolution"),
    "core/compile/accumulate.py": _SUMS,
    "core/compile/vectorize.py": ("largest of all", "padded", "backwards", "window in the padding", *_SUMS),
    "core/compile/promote.py": ("half", "half sum"),
    "core/compile/transcendental.py": ("waves", "softmax"),
    "core/compile/polynomial.py": ("waves",),
    "core/compile/sine.py": ("large angles", "waves"),
    "core/compile/linearize.py": ("softmax", "norm", "product", "short sum"),
    "core/compile/gated_rows.py": ("convolution", "running sum"),
    "core/compile/linear_terms.py": ("product", "backwards", "convolution"),
    "core/rewrite/instances.py": ("choices", "padded", "softmax"),
    "core/rewrite/facts.py": ("counted", "padded", "convolution", "gradient by place"),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a fault: the program that shows it, and what found it."""

    fault: Fault
    program: str = ""
    plain: str = "right"
    checked: str = ""
    proved: str = ""

    @property
    def is_live(self) -> bool:
        return self.plain in ("wrong", "died")

    def __str__(self) -> str:
        return f"{self.fault.name[:70]:70} {self.program:18} {self.plain:6} CHECK {self.checked:7} PROVE {self.proved}"


def ways(name: str) -> tuple[Tensor, Any]:
    """A program's value, not computed yet, and what numpy says."""
    values, by_numpy, _ = PROGRAMS[name]
    return values(), by_numpy()


def _ran(name: str, **asked: int) -> str:
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


def outcome(fault: Fault, programs: Iterable[str]) -> Outcome:
    """Run programs with a fault until one shows it; then with CHECK=1 and with PROVE=1."""
    text = fault.text()
    for name in programs:
        plain = _told(fault, text, name)
        if plain == "hangs":
            break
        if plain in ("wrong", "died"):
            return Outcome(
                fault, name, plain, *[_told(fault, text, name, **{way: 1}) for way in WAYS]
            )
    return Outcome(fault)


WAYS = ("CHECK", "PROVE")
SECONDS = 12  # of a process's own time for one program


def _told(fault: Fault, text: str, name: str, **asked: int) -> str:
    """What happens to a program with a fault, in a process of its own."""

    def work(tell: Callable[[Any], None]) -> None:
        plant(fault.module, text)
        tell(_ran(name, **asked))

    return str((in_a_fork(work, SECONDS) or ["died"])[0])


def warm() -> None:
    """Everything loaded that forks share: rules with their evidence, the solver, one compiled kernel."""
    for name in ("short sum", "half"):
        assert (
            _ran(name) == "right"
            and _ran(name, CHECK=1) == "right"
            and _ran(name, PROVE=1) == "right"
        )


def main(arguments: Sequence[str]) -> int:
    """Plant until so many live faults were seen; a table, and 1 if one was missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--live", type=int, default=100)
    parser.add_argument("--file", action="append")
    asked = parser.parse_args(arguments)
    draw = random.Random(asked.seed)
    files = asked.file or list(WHERE)
    waiting = {
        file: draw.sample(range(count), count) for file in files if (count := mutations(file))
    }
    warm()
    live: list[Outcome] = []
    planted = 0
    while waiting and len(live) < asked.live:
        for file in list(waiting):
            if not waiting[file]:
                del waiting[file]
                continue
            planted += 1
            found = outcome(mutation(file, waiting[file].pop()), WHERE[file])
            if found.is_live:
                live.append(found)
                print(found, flush=True)
    checked = sum([o.checked in ("found", "refused") for o in live])
    proved = sum([o.proved in ("found", "refused") for o in live])
    print(f"{planted} planted, {len(live)} live: CHECK=1 finds {checked}, PROVE=1 finds {proved}")
    return 0 if checked == proved == len(live) else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
