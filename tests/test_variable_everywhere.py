"""A variable wherever a size or an index may stand: each program gives what it gives with the number in its place."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from proofgrad import (
    Context,
    DtypeError,
    JitError,
    ShapeError,
    Tensor,
    TinyJit,
    Variable,
    dtypes,
    nn,
)
from proofgrad.core.compile.plan.known_kernels import KnownKernels
from proofgrad.core.ir.dtypes import DType
from proofgrad.core.tensor.runtime.realize import compiler

Program = Callable[[Any, Any], Tensor]
X = np.arange(40, dtype=np.float32).reshape(10, 4) % 7 - 2
LINE = np.array([3, -1, 4, 1, -5, 9, 2, 6, -5, 3], np.float32)
NET = nn.Linear(4, 3)
TABLE = nn.Embedding(10, 3)
NORM = nn.GroupNorm(2, 4)


def _attention(x: Tensor, n: Any) -> Tensor:
    keys = x.reshape(1, 2, 5, 4)[:, :, :n]
    return x[:2].reshape(1, 2, 1, 4).scaled_dot_product_attention(keys, keys)


def _written(x: Tensor, n: Any, value: Any) -> Tensor:
    x = x.contiguous()
    x[n] = value
    return x


def _written_rows(x: Tensor, n: Any) -> Tensor:
    x = x.contiguous()
    x[:n] = x[:n] * 2
    x[n : n + 1] = 7
    return x


def _assigned(x: Tensor, n: Any) -> Tensor:
    x = x.contiguous().realize()
    x.shrink(((n, n + 1), None)).assign(Tensor.full((1, 4), 5.0))
    return x


def _gradient(x: Tensor, n: Any) -> Tensor:
    return (x[:n].square().sum(0) * x[n]).sum().gradient(x)[0]


# n is 1 .. 4. Of a Tensor of 10 rows and 4 columns.
PROGRAMS: dict[str, Program] = {
    "a row": lambda x, n: x[n],
    "a row from the end": lambda x, n: x[-n],
    "an element": lambda x, n: x[n, n - 1],
    "rows": lambda x, n: x[:n],
    "rows after": lambda x, n: x[n:],
    "rows between": lambda x, n: x[n : 2 * n + 1],
    "one of the rows": lambda x, n: x[n : n + 1],
    "the last rows": lambda x, n: x[-n:],
    "all but the last rows": lambda x, n: x[:-n],
    "to a position from the end": lambda x, n: x[n:-1],
    "columns": lambda x, n: x[:, :n],
    "every other row": lambda x, n: x[:n:2],
    "every third from a position": lambda x, n: x[n::3],
    "backwards": lambda x, n: x[:n][::-1],
    "backwards from a position": lambda x, n: x[n::-1],
    "backwards in steps": lambda x, n: x[: 2 * n][::-2],
    "a row of rows": lambda x, n: x[:n][0],
    "the last of rows": lambda x, n: x[:n][-1],
    "rows of rows by a Tensor": lambda x, n: x[: 2 * n][Tensor([1, 0, -1])],
    "rows by a Tensor of variable size": lambda x, n: x[Tensor([3, 1, 0, 9])[:n]],
    "shrink": lambda x, n: x.shrink(((n, 9), (0, n))),
    "shrink_to": lambda x, n: x.shrink_to(n, None),
    "pad": lambda x, n: x[:n].pad(((1, 10 - n), (0, 0))),
    "pad flat": lambda x, n: x.pad((n, 0, 1, n)),
    "pad with a value": lambda x, n: x.pad(((n, 1), None), value=-1.5),
    "pad that cuts": lambda x, n: x.pad(((-n, 1), None)),
    "pad_to": lambda x, n: x[:n].pad_to(n + 3, 4),
    "reshape to a line": lambda x, n: x[:n].reshape(n * 4),
    "reshape with the rest": lambda x, n: x[:n].reshape(-1, 2),
    "reshape to blocks": lambda x, n: x[: 2 * n].reshape(n, 2, 4).sum(1),
    "flatten": lambda x, n: x[:n].flatten(),
    "expand": lambda x, n: x[:1].expand(n, 4),
    "repeat": lambda x, n: x[:2].repeat(n, 1),
    "permute": lambda x, n: x[:n].permute(1, 0),
    "flip": lambda x, n: x[:n].flip(0),
    "cat": lambda x, n: x[:n].cat(x[:2]),
    "cat of three": lambda x, n: x[:2].cat(x[: n + 1], x[n : 2 * n]),
    "cat along columns": lambda x, n: x[:, :n].cat(x, dim=1),
    "stack": lambda x, n: Tensor.stack(x[:n], x[n : 2 * n], dim=1),
    "split on another axis": lambda x, n: x[:n].split(2, 1)[1],
    "unsqueeze": lambda x, n: x[:n].unsqueeze(1).squeeze(1),
    "full": lambda x, n: Tensor.full((n, 2), 2.5),
    "ones": lambda x, n: Tensor.ones(n, 2).cumsum(0),
    "arange": lambda x, n: Tensor.arange(n),
    "arange from": lambda x, n: Tensor.arange(n, 3 * n + 1),
    "arange in steps": lambda x, n: Tensor.arange(1, 4 * n, 3),
    "arange down": lambda x, n: Tensor.arange(2 * n, -1, -2),
    "arange of floats": lambda x, n: Tensor.arange(n, dtype=dtypes.float32) / 3,
    "eye of rows": lambda x, n: Tensor.eye(10)[:n],
    "plus the number": lambda x, n: x + n,
    "the number minus": lambda x, n: n - x,
    "the number over": lambda x, n: (n + 1) / (x + 10),
    "less than the number": lambda x, n: n > x,
    "the number as a Tensor": lambda x, n: Tensor(n) * Tensor(n - 2),
    "a quotient of the number": lambda x, n: Tensor((3 * n + 1) // 2) + Tensor(n % 3),
    "sum": lambda x, n: x[:n].sum(),
    "sum over columns": lambda x, n: x[:, :n].sum(1),
    "mean": lambda x, n: x[:n].mean(),
    "mean over rows": lambda x, n: x[:n].mean(0),
    "var": lambda x, n: x[: n + 1].var(0),
    "std": lambda x, n: x[: n + 1].std(),
    "max": lambda x, n: x[:n].max(0),
    "prod": lambda x, n: x[:, :n].prod(1),
    "argmax": lambda x, n: x[: 2 * n].argmax(0),
    "argmin of all": lambda x, n: x[: 2 * n].argmin(),
    "softmax": lambda x, n: x[:, :n].softmax(-1),
    "softmax over rows": lambda x, n: x[:n].softmax(0),
    "log_softmax": lambda x, n: x[:, :n].log_softmax(),
    "logsumexp": lambda x, n: x[:n].logsumexp(0),
    "layernorm": lambda x, n: x[:n].layernorm(),
    "cumsum": lambda x, n: x[: 2 * n].cumsum(0),
    "cummax": lambda x, n: x[: 2 * n].cummax(0)[0],
    "sort": lambda x, n: x[: 2 * n].sort(0)[0],
    "argsort": lambda x, n: x[: 2 * n].argsort(0, descending=True),
    "topk": lambda x, n: x[: n + 2].topk(2, 0)[0],
    "tril": lambda x, n: x[: 2 * n].tril(),
    "triu of a variable": lambda x, n: x.triu(n),
    "causal mask": lambda x, n: Tensor.ones(n, n).tril(),
    "mask of a chunk": lambda x, n: Tensor.full((3, n + 3), -1.0).triu(n + 1),
    "where": lambda x, n: (x[:n] > 1).where(x[:n], 0),
    "masked by position": lambda x, n: (Tensor.arange(10).unsqueeze(1) < n).where(x, 0),
    "product": lambda x, n: x[:n] @ x[:4],
    "product over": lambda x, n: x[:, :n] @ x[:n],
    "product both": lambda x, n: x[:n] @ x[:n].T,
    "batch of products": lambda x, n: x.reshape(5, 2, 4)[:n] @ x[:4],
    "einsum": lambda x, n: Tensor.einsum("ij,kj->ik", x[:n], x[: n + 1]),
    "outer": lambda x, n: x[:n, :1] * x[0],
    "conv2d": lambda x, n: x[: n + 3].reshape(1, 1, n + 3, 4).conv2d(x[:3, :2].reshape(1, 1, 3, 2)),
    "conv2d with stride": lambda x, n: (
        x[: n + 3].reshape(1, 1, n + 3, 4).conv2d(x[:3, :2].reshape(1, 1, 3, 2), stride=2, padding=1)
    ),
    "max_pool2d": lambda x, n: x[: n + 2].reshape(1, 1, n + 2, 4).max_pool2d(2, 1),
    "avg_pool2d": lambda x, n: x[: 2 * n].reshape(1, 1, 2 * n, 4).avg_pool2d(2),
    "linear": lambda x, n: NET(x[:n]),
    "embedding": lambda x, n: TABLE(Tensor([1, 0, 7, 3])[:n]),
    "group norm": lambda x, n: NORM(x.reshape(5, 4, 2)[:n]),
    "cross entropy": lambda x, n: x[:n].sparse_categorical_crossentropy(Tensor([1, 0, 3, 3])[:n]),
    "mean squared error": lambda x, n: (x[:n] - 1).square().mean(),
    "attention": _attention,
    "gather": lambda x, n: x[:n].gather(1, Tensor([[0, 1], [2, 3], [3, 0], [1, 1]])[:n]),
    "one_hot": lambda x, n: Tensor([1, 0, 7, 3])[:n].one_hot(8),
    "write a row": lambda x, n: _written(x, n, 3),
    "write a row of values": lambda x, n: _written(x, n, Tensor([1.0, 2, 3, 4])),
    "write rows": _written_rows,
    "assign to a view": _assigned,
    "roll": lambda x, n: x[:n].roll(1, 0),
    "roll by the variable": lambda x, n: x.roll(n, 0),
    "roll back by the variable": lambda x, n: x.roll(-n, 0),
    "roll by more than there are": lambda x, n: x[:n].roll(7, 0),
    "roll back by more than there are": lambda x, n: x[:n].roll((-3, 1), (0, 1)),
    "roll as one line": lambda x, n: x[:n].roll(1),
    "one_hot of variable classes": lambda x, n: Tensor([0, 1, 2]).one_hot(n),
    "repeat_interleave": lambda x, n: x[:2].repeat_interleave(n, 0),
    "split in two": lambda x, n: x.split([n, 10 - n], 0)[1],
    "split in parts of a variable": lambda x, n: x[: 2 * n].split(n, 0)[1],
    "chunk": lambda x, n: x[: 2 * n].chunk(2, 0)[1],
    "the first of an order": lambda x, n: x.topk(n, 0)[0],
    "scatter": lambda x, n: x[:n].scatter(1, Tensor([[1], [0], [2], [3]])[:n], 5.0),
    "scatter_reduce": lambda x, n: x.scatter_reduce(0, Tensor([[1], [0], [2], [3]])[:n], x[:n], "sum"),
    "masked_select": lambda x, n: x[:n].masked_select(x[:n] > -1),
    "nonzero": lambda x, n: x[:n].nonzero(),
    "pool with a ceiling": lambda x, n: x[: 2 * n].reshape(1, 1, 2 * n, 4).max_pool2d(2, ceil_mode=True),
    "pool of everything": lambda x, n: x[:n].reshape(1, 1, n, 4).avg_pool2d((n, 4)),
    "bits of a line": lambda x, n: x.flatten().bitcast(dtypes.uint8)[: 4 * n].bitcast(dtypes.int32),
    "an index list": lambda x, n: x[[0, n]],
    "a list of numbers": lambda x, n: Tensor([[n, 1], [2, n]]),
    "linspace": lambda x, n: Tensor.linspace(0, 1, n),
    "eye": lambda x, n: x[:n].T @ Tensor.eye(n),
    "unflatten": lambda x, n: x[: 2 * n].unflatten(0, (n, 2)).unflatten(2, (-1, 2)),
    "rearrange": lambda x, n: x[:n].rearrange("n (a b) -> (a n) b", a=2),
    "pad by reflection": lambda x, n: x[: n + 2].T.reshape(1, 4, n + 2).pad((1, 2), mode="reflect"),
    "pad in a circle": lambda x, n: x[:n].T.reshape(1, 4, n).pad((1, 0), mode="circular"),
    "pad in a circle by the variable": lambda x, n: x.T.reshape(1, 4, 10).pad((n, 0), mode="circular"),
    "full of the variable": lambda x, n: Tensor.full((2, n), n),
    "diagonal": lambda x, n: Tensor.einsum("ii->i", x[:n, :n]) + x[:n, :n].diagonal(),
    "trace of a product": lambda x, n: Tensor.einsum("ij,ji->", x[:n, :n], x[:n, :n]),
    "interpolate": lambda x, n: x[: n + 1].reshape(1, 1, n + 1, 4).interpolate((3, n + 1)),
    "replicated": lambda x, n: x[:n].T.reshape(1, 4, n).pad((1, 1), mode="replicate"),
    "causal attention": lambda x, n: x[:n].scaled_dot_product_attention(x[:n], x[:n], is_causal=True),
    "attention with a mask": lambda x, n: (
        x[:n].scaled_dot_product_attention(x[:n], x[:n], attn_mask=Tensor.ones(n, n).tril().bool())
    ),
    "transposed convolution": lambda x, n: (
        x[:n].reshape(1, 1, n, 4).conv_transpose2d(x[:2, :2].reshape(1, 1, 2, 2), stride=2)
    ),
    "float16": lambda x, n: x[: n + 1].half().var(0) + x[:n].half().softmax(0).sum(0),
    "where the variable decides": lambda x, n: x if n >= 1 else x * 0,
    "gradient of a roll": lambda x, n: (x[:n].roll(1, 0) * x[:n] + x.roll(n, 0)[:n]).sum().gradient(x)[0],
    "gradient of a pool": lambda x, n: (
        x[:n].reshape(1, 1, n, 4).avg_pool2d((n, 2)).square().sum().gradient(x)[0]
    ),
    "gradient of attention": lambda x, n: (
        x[:n].scaled_dot_product_attention(x[:n], x[:n], is_causal=True).square().sum().gradient(x)[0]
    ),
    "gradient of picked rows": lambda x, n: x[Tensor([3, 1, 3, 0])[:n]].square().sum().gradient(x)[0],
    "cast": lambda x, n: x[:n].cast(dtypes.int8),
    "contiguous": lambda x, n: x[:n].contiguous() + x[n],
    "gradient": _gradient,
}  # fmt: skip


# n is 0 .. 4.
NONE_AT_ALL: dict[str, Program] = {
    "sum": lambda x, n: x[:n].sum(0),
    "mean": lambda x, n: x[:n].sum(0) / (n + 1),
    "product": lambda x, n: x[:, :n] @ x[:n],
    "softmax": lambda x, n: x[:n].softmax(0),
    "sort": lambda x, n: x[:n].sort(0)[0],
    "cat": lambda x, n: x[:n].cat(x[:1]),
    "roll by the variable": lambda x, n: x.roll(n, 0),
    "write rows": _written_rows,
    "row of the position": lambda x, n: x[n],
    "one_hot": lambda x, n: Tensor([0, 1]).one_hot(n),
    "roll by more than there may be": lambda x, n: x[:n].roll(2, 0),
    "roll back": lambda x, n: x[:n].roll(-1, 0),
    "topk": lambda x, n: x.topk(n, 0)[0],
    "scatter": lambda x, n: x.scatter(0, Tensor([[1], [0], [2], [3]])[:n], 5.0),
    "eye": lambda x, n: Tensor.eye(n),
    "cumsum": lambda x, n: x[:n].cumsum(0),
    "attention": lambda x, n: x[:n].scaled_dot_product_attention(x[:n], x[:n]),
    "gradient": lambda x, n: x[:n].square().sum().gradient(x)[0],
    "gradient of a product": lambda x, n: (x[:n] @ x[:4]).square().sum().gradient(x)[0],
    "sum of a product of two such axes": lambda x, n: (x[:n] @ x[:n].T).sum(),
    "sum over pairs": lambda x, n: (x[:n, 0].unsqueeze(0) * x[:n, 1].unsqueeze(1) + 1).sum(),
}  # fmt: skip


@pytest.mark.parametrize("device", ("CPU", "REFERENCE"))
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_variable_is_as_good_as_its_number(name: str, device: str) -> None:
    program = PROGRAMS[name]
    if device == "REFERENCE" and name in ("linear", "embedding", "group norm"):
        pytest.skip("the layers of this file are on the default device")
    n = Variable("n", 1, 4)
    for number in (2, 1, 4):
        with_number = _on(device, program, number)
        with_variable = _on(device, program, n.bind(number))
        assert with_variable.shape == with_number.shape and with_variable.dtype == with_number.dtype
        np.testing.assert_allclose(with_variable, with_number, rtol=2e-6, atol=1e-6)


def _on(device: str, program: Program, n: Any) -> np.ndarray[Any, Any]:
    with Context(DEV=device):
        x = Tensor(X)
        x.requires_grad = True
        return program(x, n).numpy()


@pytest.mark.parametrize("name", NONE_AT_ALL)
def test_a_variable_may_be_0(name: str) -> None:
    n = Variable("none", 0, 4)
    for number in (0, 3):
        expected = _on("CPU", NONE_AT_ALL[name], number)
        found = _on("CPU", NONE_AT_ALL[name], n.bind(number))
        assert found.shape == expected.shape
        np.testing.assert_allclose(found, expected, rtol=2e-6, atol=1e-6)


def test_shapes_and_sizes_are_printed_as_people_write_them() -> None:
    n, x = Variable("n", 1, 4), Tensor(X)
    assert str(x[: n.bind(3)].shape) == "(n=3, 4)" and repr(n) == "n"
    assert str(x[: 2 * n.bind(3) + 1].shape) == "(2*(n=3)+1, 4)" and str(8 - n) == "8-n"
    assert f"{n.bind(3) // 2}" == "(n=3)//2" and "(n=3, 4)" in repr(x[: n.bind(3)])


def test_a_comparison_of_sizes_holds_for_all_values_or_is_refused() -> None:
    n = Variable("n", 2, 5)
    assert n > 1 and n >= 2 and n <= 5 and not n > 5 and 2 * n < 11 and not n.eq(6)
    for undecided in (lambda: n > 2, lambda: n.bind(3) <= 3, lambda: n.eq(2)):
        with pytest.raises(TypeError, match=r"depends on the value of a variable.*\.val"):
            assert undecided()


def test_a_size_that_is_asked_for_as_a_number_says_what_to_ask() -> None:
    n = Variable("n", 1, 4)
    for ask in (int, float):
        with pytest.raises(
            TypeError, match=r"n=3 is a value that is known when a plan runs; ask \.val"
        ):
            ask(n.bind(3))


def test_windows_that_do_not_fit_the_least_size_say_so() -> None:
    x = Tensor.ones(1, 2, 8, 8)[..., : Variable("n", 1, 8).bind(3)]
    for ask in (
        lambda: x.conv2d(Tensor.ones(3, 2, 3, 3)),
        lambda: x.max_pool2d((3, 3), 1),
        lambda: x.unfold(3, 3, 1),
    ):
        with pytest.raises(
            ShapeError, match=r"for all values of its variables \(1 at least\).*least value"
        ):
            ask()


@pytest.mark.parametrize("number", [0, 5, 200])
def test_running_functions_of_an_axis_that_may_be_empty(number: int) -> None:
    values = np.random.default_rng(3).normal(size=300).astype(np.float32)
    x = Tensor(values)[: Variable("n", 0, 250).bind(number)]
    np.testing.assert_allclose(x.cumsum(0).numpy(), values[:number].cumsum(), rtol=1e-4, atol=1e-4)
    largest, positions = x.cummax(0)
    np.testing.assert_array_equal(largest.numpy(), np.maximum.accumulate(values[:number]))
    np.testing.assert_array_equal(values[positions.numpy()], largest.numpy())


@pytest.mark.parametrize("name", ["sum", "mean", "std"])
def test_a_sum_takes_as_long_as_its_elements_and_not_as_its_bound(name: str) -> None:
    x, n = Tensor(X).realize(), Variable("n", 0, 1 << 30)
    took = 0.0
    for number in (5, 4):
        before = time.process_time()
        found = getattr(x[: n.bind(number)], name)(0).numpy()
        took = time.process_time() - before
    expected = X[:4].std(0, ddof=1) if name == "std" else getattr(X[:4], name)(0)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert took < 0.5  # 1 << 30 masked additions take seconds


def test_memory_that_the_largest_value_does_not_leave_names_the_variable() -> None:
    n = Variable("n", 1, 1 << 29)
    with pytest.raises(MemoryError, match=r"cannot allocate .* variable \(n\)"):
        (Tensor(X)[: n.bind(2)] @ Tensor(X)[: n.bind(2)].T).contiguous().realize()


@pytest.mark.parametrize("choices", ["", "reduction_block=128", "reduction_block=32 packed=on"])
def test_a_product_of_some_rows_is_not_summed_in_blocks(choices: str) -> None:
    """Results under a mask are not added up in memory, whatever the sizes would say: that was an AssertionError where 512 steps are long, as with AVX2."""
    rng = np.random.default_rng(0)
    rows, weights = rng.random((64, 512), np.float32), rng.random((512, 512), np.float32)
    n, x, w = Variable("n", 1, 64), Tensor(rows).realize(), Tensor(weights).realize()
    with Context(CHOICES=choices, PLANS=0):
        for number in (2, 64):
            found = (x[: n.bind(number)] @ w).numpy()
            np.testing.assert_allclose(found, rows[:number] @ weights, rtol=1e-4)


def test_one_compile_serves_all_values() -> None:
    n, x, compiled = Variable("m", 1, 10), Tensor(X), []
    for number in (3, 1, 10, 7):
        before = compiler().kernels_compiled
        assert (x[: n.bind(number)].softmax(0) @ x[:4]).numpy().shape == (number, 4)
        compiled.append(compiler().kernels_compiled - before)
    assert compiled[0] > 0 and compiled[1:] == [0, 0, 0]


def test_kernels_that_are_held_no_more_were_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """A long run makes more than a process holds: what is put in then takes the place of another one."""
    for name, value in (("_kernels", KnownKernels(2)), ("_plans", {})):
        monkeypatch.setattr(compiler(), name, value)
    counts = []
    for columns in (11, 12, 13, 14, 15):
        (Tensor(np.ones((3, columns), np.float32)).realize().T + 1).sum(1).realize()
        counts.append(compiler().kernels_compiled)
    assert counts == [1, 2, 3, 4, 5] and len(compiler()._kernels.by_body) == 2


def test_one_variable_with_several_values_in_one_computation() -> None:
    n = Variable("n", 1, 9)
    x = Tensor(X)
    rows = [x[: n.bind(k)].sum(0) for k in (3, 5, 9, 3)]
    np.testing.assert_array_equal(Tensor.stack(*rows).numpy(), [X[:k].sum(0) for k in (3, 5, 9, 3)])
    both = x[: n.bind(2)].cat(x[: n.bind(7)])
    np.testing.assert_array_equal(both.numpy(), np.concatenate([X[:2], X[:7]]))


def test_a_cache_grows_without_a_jit() -> None:
    position = Variable("position", 0, 7)
    cache = Tensor.zeros(8, 4).contiguous().realize()
    for k in range(8):
        at = position.bind(k)
        cache[at : at + 1].assign(Tensor(X[k : k + 1]))
        seen = cache[: at + 1].sum(0)
        np.testing.assert_array_equal(seen.numpy(), X[: k + 1].sum(0))
    np.testing.assert_array_equal(cache.numpy(), X[:8])


def test_a_jitted_function_takes_tensors_of_variable_shape() -> None:
    n = Variable("n", 1, 9)

    @TinyJit
    def f(t: Tensor) -> tuple[Tensor, Tensor]:
        return (t * 2).realize(), t.sum(0).realize()

    x = Tensor(X)
    for k in (3, 5, 1, 9, 4):
        doubled, total = f(x[: n.bind(k)])
        np.testing.assert_array_equal(doubled.numpy(), X[:k] * 2)
        np.testing.assert_array_equal(total.numpy(), X[:k].sum(0))
        again, _ = f((x[: n.bind(k)] + 1).contiguous().realize())
        np.testing.assert_array_equal(again.numpy(), (X[:k] + 1) * 2)
    assert f.kernel_count == 2
    with pytest.raises(JitError, match="argument 0"):
        f(x)


def test_a_jitted_function_takes_one_value_of_a_variable() -> None:
    n, x = Variable("n", 1, 9), Tensor(X)

    @TinyJit
    def f(a: Tensor, b: Tensor) -> Tensor:
        return (a.sum() + b.sum()).realize()

    for k in (3, 5, 4):
        assert f(x[: n.bind(k)], x[: n.bind(k)]).item() == 2 * X[:k].sum()
    with pytest.raises(JitError, match="variable n is 3 and 5"):
        f(x[: n.bind(3)], x[: n.bind(5)])
    f.reset()
    assert f(x[: n.bind(3)], x[: n.bind(5)]).item() == X[:3].sum() + X[:5].sum()
    with pytest.raises(JitError, match="variable n is 3 and 5"):
        f(x[: n.bind(3)], x[: n.bind(5)])


def test_a_jitted_function_indexes_by_its_variable() -> None:
    n = Variable("n", 0, 9)
    f = TinyJit(lambda t, k: (t[k] + t[:k].sum(0)).realize())
    for k in (1, 4, 0, 9, 2):
        np.testing.assert_array_equal(f(Tensor(X), n.bind(k)).numpy(), X[k] + X[:k].sum(0))


def test_training_over_batches_of_variable_size() -> None:
    size = Variable("batch", 1, 9)
    Tensor.manual_seed(3)
    nets = [nn.Linear(4, 2), nn.Linear(4, 2)]
    nets[1].weight.assign(nets[0].weight), nets[1].bias.assign(nets[0].bias)
    steps = [nn.optim.Adam(nn.state.get_parameters(net), lr=0.1) for net in nets]
    for k in (3, 9, 1, 5):
        for net, optimizer, count in zip(nets, steps, (k, size.bind(k))):
            with Tensor.train():
                optimizer.zero_grad()
                net(Tensor(X)[:count]).square().mean().backward()
                optimizer.step()
    np.testing.assert_allclose(nets[1].weight.numpy(), nets[0].weight.numpy(), rtol=1e-5, atol=1e-6)


def test_batch_norm_remembers_batches_of_variable_size_and_nothing_of_an_empty_one() -> None:
    size = Variable("batch", 0, 9)
    norms = [nn.BatchNorm(4), nn.BatchNorm(4)]
    for k in (3, 0, 9, 2):
        for norm, count in zip(norms, (k, size.bind(k))):
            with Tensor.train():
                norm(Tensor(X)[:count]).realize()
    np.testing.assert_allclose(
        norms[1].running_var.numpy(), norms[0].running_var.numpy(), rtol=1e-6
    )


def test_random_numbers_and_dropout_of_variable_size() -> None:
    n = Variable("n", 1, 900)
    for k in (1, 900, 33):
        drawn = Tensor.rand(n.bind(k), 3).numpy()
        assert drawn.shape == (k, 3) and (0 <= drawn).all() and (drawn < 1).all()
        with Tensor.train():
            kept = Tensor.ones(n.bind(k), 4).dropout(0.5).numpy()
        assert kept.shape == (k, 4) and set(np.unique(kept)) <= {0.0, 2.0}


@pytest.mark.parametrize(
    ("wrong", "error", "words"),
    (
        (lambda x, n: x[n + 7], IndexError, "index \\(n=3\\)\\+7 is out of range"),
        (lambda x, n: x[: n + 8], ShapeError, "0 <= begin <= end <= size"),
        (
            lambda x, _: x[Variable("free", 1, 5) - 3 :],
            IndexError,
            "counts from the end or from the",
        ),
        (lambda x, n: x[:n:n], IndexError, "step of a slice is an int"),
        (lambda x, n: x.roll(n - 3, 0), ShapeError, "may add to it or cut it"),
        (lambda x, n: x[:n] + x[: n + 1], ShapeError, "\\(n=3\\)\\+1 and n=3"),
        (lambda x, n: x[:n].reshape(3, -1), ShapeError, "not the same product"),
        (lambda x, n: Tensor.arange(n, 3), ShapeError, "less than no elements"),
        (lambda x, n: Tensor.arange(0, 9, n), DtypeError, "step of arange is a number"),
        (lambda x, n: Tensor.arange(n, 3 * n + 1, n), DtypeError, "write Tensor.arange"),
        (lambda x, n: Tensor.ones(n, 2).reshape(n // (n + 1), 2), TypeError, "divided by a number"),
    ),
)
def test_what_depends_on_the_value_is_refused(wrong: Program, error: type, words: str) -> None:
    with pytest.raises(error, match=words):
        wrong(Tensor(X), Variable("n", 1, 5).bind(3))


@pytest.mark.parametrize(
    "dtype", (dtypes.int8, dtypes.uint8, dtypes.int64, dtypes.half, dtypes.bool)
)
def test_a_variable_is_of_the_type_of_the_other_operand_as_a_number_is(dtype: DType) -> None:
    n, x = Variable("n", 1, 4).bind(3), Tensor([1, 0, 1]).cast(dtype)
    for f in (lambda x, n: x + n, lambda x, n: n * x, lambda x, n: (x > 0).where(n, x)):
        assert f(x, n).dtype == f(x, 3).dtype
        np.testing.assert_array_equal(f(x, n).numpy(), f(x, 3).numpy())
    large = Variable("large", 1, 1000).bind(700)
    assert (Tensor([1]).cast(dtypes.int8) + large).tolist() == [701]


def test_bound_variables_tell_what_they_are() -> None:
    n = Variable("n", 1, 9)
    assert n.bind(3).unbind() == (n, 3) and n.bind(3).val == 3 and (n.bind(4) * 2 + 1).val == 9
    assert (n.vmin, n.vmax, ((n + 1) // 2).vmin, ((n + 1) // 2).vmax) == (1, 9, 1, 5)
    assert ((n + 1) // 2 * 2 - n).vmin == 0 and ((n + 1) // 2 * 2 - n).vmax == 1
    with pytest.raises(ValueError, match="no bound variable"):
        n.unbind()
    with pytest.raises(ValueError, match="has no value"):
        _ = n.val


def test_values_of_variable_size_leave_as_numbers(tmp_path: Path) -> None:
    n = Variable("n", 1, 9)
    x = Tensor(X)[: n.bind(4)]
    assert pickle.loads(pickle.dumps(x)).tolist() == X[:4].tolist()
    np.testing.assert_array_equal(np.from_dlpack(x.contiguous()), X[:4])
    nn.state.safe_save({"x": x, "none": x[:, :0]}, str(tmp_path / "x.safetensors"))
    again = nn.state.safe_load(str(tmp_path / "x.safetensors"))
    assert again["x"].shape == (4, 4) and again["x"].tolist() == X[:4].tolist()
    assert np.asarray(x).shape == x.data().shape == (4, 4)


def test_a_number_of_parts_that_varies_is_refused_with_the_way_to_the_value() -> None:
    x = Tensor(X)[: Variable("n", 1, 9).bind(4)]
    for counted in (len, list, lambda x: [*x]):
        with pytest.raises(TypeError, match=r"x\.shape\[0\]\.val is its size now"):
            counted(x)
    assert len(x.T) == 4 and x.shape[0].val == 4


@pytest.mark.parametrize("n, m", ((1, 2), (3, 5)))
def test_the_size_that_is_left_out_may_be_a_quotient_of_sums(n: int, m: int) -> None:
    a, b = Variable("a", 1, 4).bind(n), Variable("b", 1, 6).bind(m)
    x = Tensor.zeros(5, 7, 16)[: a + 1, : b + 1]
    for shape, axis, size in (
        ((a + 1, -1), 1, (m + 1) * 16),
        ((-1, b + 1, 8), 0, (n + 1) * 2),
        (((a + 1) * (b + 1), 4, -1), 2, 4),
    ):
        left_out = x.reshape(*shape).shape[axis]
        assert (left_out if isinstance(left_out, int) else left_out.val) == size
    assert x.reshape((a + 1) * (b + 1), 4, -1).sum().item() == 0.0
    with pytest.raises(ShapeError, match="give every size"):
        x.reshape(a + 2, -1)
    with pytest.raises(ShapeError, match="give every size"):
        x.reshape(a + 1, 3, -1)
