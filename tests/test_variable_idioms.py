"""Programs with two variables, recorded and replayed: each gives what it gives with numbers in their place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from proofgrad import Context, JitError, ShapeError, Tensor, TinyJit, Variable, dtypes, nn
from proofgrad.core.compile.plan.plan import Kernel
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.runtime.realize import compiler
from proofgrad.verify.sampled.kernels import CheckError, ValueChecker

Program = Callable[[Any, Any, Any], Tensor]
X = (np.arange(78, dtype=np.float32).reshape(13, 6) * 7 % 11 - 4) / 2
# n is 0 .. 7 and m is 1 .. 5: more than some of the axes have, and both at their ends.
N, M = Variable("n", 0, 7), Variable("m", 1, 5)
PAIRS = ((2, 3), (0, 1), (6, 4))
CONV = nn.Conv1d(6, 4, 3, padding=1)
GRU, LSTM = nn.GRU(6, 3), nn.LSTM(6, 3, bidirectional=True)
IDS = [1, 0, 3, 3, 2, 1, 5, 4]


def _written(x: Tensor, index: Any, value: Any) -> Tensor:
    x = x.contiguous()
    x[index] = value
    return x


def _mask(n: Any, m: Any) -> Tensor:
    return Tensor.full((m, n + m), float("-inf")).triu(n + 1)


PROGRAMS: dict[str, Program] = {
    "a corner": lambda x, n, m: x[:n, :m],
    "as many rows as the product": lambda x, n, m: x.repeat(3, 1)[: n * m],
    "as many rows as the sum": lambda x, n, m: x[: n + m],
    "a window": lambda x, n, m: x[n : n + m],
    "cat of two sizes": lambda x, n, m: x[:n].cat(x[:m]),
    "cat of both sides of a column": lambda x, n, m: x[:n, :m].cat(x[:n, m:], dim=1),
    "product over one of both": lambda x, n, m: x[:n, :m] @ x[:m].pad((0, 1))[:, :n],
    "outer product": lambda x, n, m: x[:n, 0].unsqueeze(1) * x[:m, 1].unsqueeze(0),
    "softmax of a corner": lambda x, n, m: (x[:n, :1] * x[0:1, :m]).softmax(-1),
    "attention to what was before": lambda x, n, m: x[:m].scaled_dot_product_attention(
        x[: n + m], x[: m + n], attn_mask=_mask(n, m)
    ),
    "blocks": lambda x, n, m: x[: 2 * n].reshape(n, 2, 6).sum(1),
    "a flat corner": lambda x, n, m: x[:n, :m].flatten() + Tensor.arange(n * m),
    "positions": lambda x, n, m: Tensor.arange(n, n + m).unsqueeze(1) * (0.5 ** Tensor.arange(3)),
    "full of one": lambda x, n, m: Tensor.full((n, m), n) + m,
    "a number of both": lambda x, n, m: Tensor(n * m + 1) + x[0],
    "a band of positions": lambda x, n, m: (
        ((Tensor.arange(13) >= n) & (Tensor.arange(13) < n + m)).unsqueeze(1).where(x, -1)
    ),
    "convolution": lambda x, n, m: CONV(x[: n + 3].T.unsqueeze(0)),
    "variance of a corner": lambda x, n, m: x[: n + 2, :m].var(),
    "mean with axes kept": lambda x, n, m: x[: n + 1, :m].mean((0, 1), keepdim=True),
    "deviation along an axis": lambda x, n, m: x[:n, : m + 1].std(1),
    "a position of the largest": lambda x, n, m: x[: n + 1, :m].argmax(),
    "the first of each row": lambda x, n, m: x.topk(m, 1)[0],
    "both reversed": lambda x, n, m: x[:n, :m].flip(0, 1),
    "every other row from a position": lambda x, n, m: x[n::2, ::-1],
    "every third of the sum": lambda x, n, m: x[: n + m : 3],
    "the last rows": lambda x, n, m: x[-n - 1 :],
    "a row from the end": lambda x, n, m: x[-n - m],
    "an element": lambda x, n, m: x[n, m],
    "laid side by side": lambda x, n, m: x[:2, :2].repeat(n, m),
    "expand": lambda x, n, m: x[:1, :1].expand(n, m),
    "pad by both": lambda x, n, m: x[:n].pad(((m, 2), (0, n))),
    "pad that adds or cuts": lambda x, n, m: x.pad(((n - m, 0), None)),
    "pad with a value that adds or cuts": lambda x, n, m: x.pad(((0, m - n), None), value=-1.5),
    "einsum": lambda x, n, m: Tensor.einsum("ij,kj->ik", x[:n], x[:m]),
    "small unsigned numbers": lambda x, n, m: (x[:n].abs().cast(dtypes.uint8) * m).cast("int32"),
    "half": lambda x, n, m: x[: n + 1].half().mean(0),
    "large numbers": lambda x, n, m: x[:n].cast(dtypes.int64).cumsum(0) * m,
    "any": lambda x, n, m: (x[:n] > 0).any(0),
    "rolled by both": lambda x, n, m: x.roll(n, 0).roll(-m, 1),
    "powers": lambda x, n, m: x.abs() ** m + (x * 0 + 2) ** n,
    "integer quotients": lambda x, n, m: x.cast(dtypes.int32) // m + x.cast(dtypes.int32) % m,
    "bits": lambda x, n, m: (x.cast(dtypes.int32) << m) | n,
    "kept between": lambda x, n, m: x.clip(-m, n),
    "masked_fill": lambda x, n, m: x[:n].masked_fill(x[:n] > m, n),
    "cross entropy": lambda x, n, m: x[: n + 1].sparse_categorical_crossentropy(
        Tensor(IDS)[: n + 1]
    ),
    "write an element": lambda x, n, m: _written(x, (n, m), 9),
    "write a window": lambda x, n, m: _written(x, (slice(n, n + m), slice(0, 2)), 3.5),
    "write values of variable size": lambda x, n, m: _written(x, slice(n, n + m), x[:m] + 1),
    "pools": lambda x, n, m: x[: n + 3].reshape(1, 1, n + 3, 6).max_pool2d((3, 2), stride=1),
    "axes moved": lambda x, n, m: (
        x[: n * 2].reshape(n, 2, 3, 2).permute(2, 0, 3, 1).reshape(3, n, 4)
    ),
    "split": lambda x, n, m: x.split([n, 13 - n])[1].sum(0),
    "a mean by hand": lambda x, n, m: x[: n + 1].sum(0) / (n + 1),
    "numbers around": lambda x, n, m: x * n + m - (n * m),
    "a quotient as a size": lambda x, n, m: x[: (n + 1) // 2 + m],
    "a remainder as a size": lambda x, n, m: x[: n % 3 + 1],
    "distances": lambda x, n, m: (x[:n].unsqueeze(1) - x[:m].unsqueeze(0)).square().sum(-1),
    "interleaved": lambda x, n, m: x[:n].repeat_interleave(m, 0),
    "windows": lambda x, n, m: x[: n + 4].unfold(0, 3, 1),
    "a grid": lambda x, n, m: x[:n, 0].meshgrid(x[:m, 1])[0],
    "a view of a view": lambda x, n, m: x[: n + m][n:][:m].sum(0),
    "rows by a Tensor and a variable": lambda x, n, m: x[Tensor([0, 1, 2]) + n],
    "rows by a list with both": lambda x, n, m: x[[n, m]],
    "rows by positions": lambda x, n, m: x[Tensor.arange(n, n + m)],
    "comparisons": lambda x, n, m: (x == n) | (x < m) | (n <= x),
    "a recurrent layer": lambda x, n, m: GRU(x[: n + 1].unsqueeze(1))[0],
    "the end of a recurrent layer": lambda x, n, m: LSTM(x[:m].unsqueeze(1))[1][1],
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_recording_serves_all_values_of_two_variables(name: str) -> None:
    program = PROGRAMS[name]
    recorded = TinyJit(lambda x, n, m: program(x, n, m).realize())
    for n, m in PAIRS:
        expected = program(Tensor(X), n, m).numpy()
        found = recorded(Tensor(X).realize(), N.bind(n), M.bind(m)).numpy()
        assert found.shape == expected.shape and found.dtype == expected.dtype
        np.testing.assert_allclose(found, expected, rtol=2e-6, atol=2e-6)


WITH_GRADIENT = (
    "a corner", "a window", "cat of two sizes", "product over one of both", "softmax of a corner",
    "attention to what was before", "variance of a corner", "every other row from a position",
    "pad that adds or cuts", "einsum", "write values of variable size", "pools", "distances",
    "a view of a view", "a recurrent layer", "rows by positions",
)  # fmt: skip


@pytest.mark.parametrize("name", WITH_GRADIENT)
def test_a_gradient_passes_programs_of_two_variables(name: str) -> None:
    for n, m in PAIRS:
        found = []
        for sizes in ((n, m), (N.bind(n), M.bind(m))):
            x = Tensor(X, requires_grad=True)
            PROGRAMS[name](x, *sizes).square().sum().backward()
            found.append(x.grad.numpy())
        np.testing.assert_allclose(found[1], found[0], rtol=1e-4, atol=1e-4)


WIDE = Variable("wide", 0, 100)  # far more than there are rows


def test_a_cut_fits_for_the_value_that_is_bound() -> None:
    x = Tensor(X)
    for n in (0, 3, 12):
        np.testing.assert_array_equal(x[: WIDE.bind(n)].numpy(), X[:n])
        np.testing.assert_array_equal(x[WIDE.bind(n)].numpy(), X[n])
        np.testing.assert_array_equal(
            x.shrink(((WIDE.bind(n), WIDE.bind(n) + 1), None)).numpy(), X[n : n + 1]
        )
    for n in (3, 5, 12):
        np.testing.assert_array_equal(
            x[WIDE.bind(n) - 3 : WIDE.bind(n) + 1].numpy(), X[n - 3 : n + 1]
        )
        np.testing.assert_array_equal(x[-WIDE.bind(n)].numpy(), X[-n])
        np.testing.assert_array_equal(x[-WIDE.bind(n) :].numpy(), X[-n:])


def test_an_index_counts_from_the_end_or_from_the_begin_by_the_value_that_is_bound() -> None:
    recorded = TinyJit(lambda x, n: x[n - 3].realize())
    for n in (3, 4, 5, 1, 2, 9, 0):
        np.testing.assert_array_equal(recorded(Tensor(X).realize(), WIDE.bind(n)).numpy(), X[n - 3])


def test_a_write_fits_for_the_value_that_is_bound() -> None:
    for n in (0, 3, 9):
        x, expected = Tensor(X).contiguous().realize(), X.copy()
        x[WIDE.bind(n) : WIDE.bind(n) + 4] = 7
        x[WIDE.bind(n) + 1, 1:3] += 2
        expected[n : n + 4] = 7
        expected[n + 1, 1:3] += 2
        np.testing.assert_array_equal(x.numpy(), expected)
    rows = Tensor.zeros(N.bind(3), 2).contiguous().realize()
    rows[0] = 5
    assert rows.tolist() == [[5, 5], [0, 0], [0, 0]]


@pytest.mark.parametrize(
    ("wrong", "error", "words"),
    (
        (lambda x, n: x[:n], ShapeError, "0 .. wide=14 of an axis of 13 must keep"),
        (lambda x, n: x[n], IndexError, "wide=14 is out of range for axis 0 of .13, 6."),
        (lambda x, n: x[:WIDE], ShapeError, "begin <= end <= size, for the values"),
        (lambda x, n: x[n:], ShapeError, "begin <= end for all between their bounds"),
        (lambda x, n: x[n - 30 : n], ShapeError, "must keep 0 <= begin"),
    ),
)
def test_a_cut_that_does_not_fit_is_refused(wrong: Any, error: type, words: str) -> None:
    with pytest.raises(error, match=words):
        wrong(Tensor(X), WIDE.bind(14))


def test_a_replay_refuses_a_cut_that_does_not_fit_and_writes_nothing() -> None:
    cache = Tensor.zeros(16, 6).contiguous().realize()

    @TinyJit
    def step(x: Tensor, n: Any) -> Tensor:
        cache[n : n + 4].assign(x).realize()
        return cache[: n + 4].sum(0).realize()

    expected = np.zeros((16, 6), np.float32)
    for n in (0, 4, 8, 12, 3):
        expected[n : n + 4] = X[:4] + n
        found = step((Tensor(X)[:4] + n).realize(), WIDE.bind(n))
        np.testing.assert_allclose(found.numpy(), expected[: n + 4].sum(0))
    with pytest.raises(ShapeError, match="wide=13.*of an axis of 16"):
        step(Tensor(X)[:4].realize(), WIDE.bind(13))
    np.testing.assert_array_equal(cache.numpy(), expected)
    step(Tensor(X)[:4].realize(), WIDE.bind(12))
    np.testing.assert_array_equal(cache.numpy()[12:], X[:4])


def test_an_argument_of_a_jitted_function_is_a_sum_of_variables() -> None:
    recorded = TinyJit(lambda x, end, by: (x[:end].sum(0) * by).realize())
    for n, m in PAIRS:
        found = recorded(Tensor(X).realize(), 2 * N.bind(n) + 1, M.bind(m) * N.bind(n))
        np.testing.assert_allclose(found.numpy(), X[: 2 * n + 1].sum(0) * n * m)
    with pytest.raises(
        JitError, match=r"recorded with argument 1: 2\*n\+1, and now gets argument 1: n=2"
    ):
        recorded(Tensor(X).realize(), N.bind(2), M.bind(1) * N.bind(2))


def test_a_size_that_data_decide_is_not_recorded_even_if_there_are_no_data() -> None:
    recorded = TinyJit(lambda x, n: x[:n].masked_select(x[:n] > 0).realize())
    assert recorded(Tensor(X), N.bind(2)).shape == ((X[:2] > 0).sum(),)
    with pytest.raises(JitError, match="reads a value"):
        recorded(Tensor(X), N.bind(0))


def test_check_looks_at_kernels_of_variable_size() -> None:
    checker = ValueChecker()
    with Context(CHECK=1, PLANS=0):
        machine = compiler()
        before, machine.value_check = machine.value_check, checker
        try:
            (Tensor(X)[: N.bind(3), : M.bind(2)].softmax(0) @ Tensor(X)[: M.bind(2)]).realize()
        finally:
            machine.value_check = before
    assert checker.total.kernels >= 2 and checker.total.points > 50
    assert "sizes are variables" not in checker.total.not_checked


def test_check_refuses_a_kernel_of_variable_size_that_is_not_its_graph() -> None:
    seen: list[Any] = []

    class Listening(ValueChecker):
        def kernels(self, body: UOp, kernels: Sequence[Kernel]) -> None:
            seen.append((body, kernels))

    x, n = Tensor([1.0, 2.0, 3.0, 4.5, 7.0]).contiguous().realize(), Variable("checked", 1, 4)
    machine = compiler()
    before, machine.value_check = machine.value_check, Listening()
    try:
        with Context(CHECK=1, PLANS=0):
            (x[: n.bind(3)] * 7).realize(), (x[1 : n.bind(3) + 1] * 7).realize()
    finally:
        machine.value_check = before
    (body, kernels), (other, _) = seen
    ValueChecker().kernels(body, kernels)
    with pytest.raises(CheckError, match="sampled elements differ"):
        ValueChecker().kernels(other, kernels)
