"""Sizes that are variables: one kernel for many sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from proofgrad import Device, JitError, ShapeError, Tensor, TinyJit, UOp, Variable, dtypes
from proofgrad.core.ir.sizes import difference, normal, product, quotient, show_size
from proofgrad.core.tensor.runtime.realize import compiler

RNG = np.random.default_rng(0)
CACHE = RNG.standard_normal((2, 16, 4)).astype(np.float32)
QUERY = RNG.standard_normal((2, 3, 4)).astype(np.float32)
SIZES = (1, 5, 16, 7)


def attention(q: Any, k: Any) -> Any:
    scores = q @ k.transpose(0, 2, 1)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ k


def kernels(run: Any) -> int:
    """How many kernels running something compiled."""
    before = compiler().kernels_compiled
    run()
    return compiler().kernels_compiled - before


@pytest.mark.parametrize("device", ["CPU", "REFERENCE", "CL"])
def test_attention_over_a_growing_cache_compiles_once(device: str) -> None:
    if device not in Device.get_available_devices():
        pytest.skip(f"{device} does not run here")
    n = Variable("n", 1, 16)
    cache, query = [Tensor(a, device=device).realize() for a in (CACHE, QUERY)]

    def run(size: int) -> None:
        keys = cache.shrink(((0, 2), (0, n.bind(size)), (0, 4)))
        found = (query @ keys.transpose(1, 2)).softmax(-1) @ keys
        want = attention(QUERY, CACHE[:, :size])
        np.testing.assert_allclose(found.numpy(), want, rtol=1e-5, atol=1e-6)

    assert kernels(lambda: run(SIZES[0])) > 0
    assert kernels(lambda: [run(size) for size in SIZES[1:]]) == 0


OPERATIONS: dict[str, tuple[Any, Any]] = {
    "slice": (lambda x, v: x[:, :v], lambda a, k: a[:, :k]),
    "last": (lambda x, v: x[:, v - 1 : v], lambda a, k: a[:, k - 1 : k]),
    "reshape": (lambda x, v: x[:, :v].reshape(2, -1), lambda a, k: a[:, :k].reshape(2, -1)),
    "sum": (lambda x, v: x[:, :v].sum(1), lambda a, k: a[:, :k].sum(1)),
    "max": (lambda x, v: x[:, :v].max(), lambda a, k: a[:, :k].max()),
    "mean": (lambda x, v: x[:, :v].mean(1), lambda a, k: a[:, :k].mean(1)),
    "mean of all": (lambda x, v: x[:, :v].mean(), lambda a, k: a[:, :k].mean()),
    "var": (lambda x, v: x[:, :v].var(1, correction=0), lambda a, k: a[:, :k].var(1)),
    "layernorm": (
        lambda x, v: x[:, :v].layernorm((1, 2)),
        lambda a, k: (a[:, :k] - a[:, :k].mean((1, 2), keepdims=True))
        / np.sqrt(a[:, :k].var((1, 2), keepdims=True) + 1e-5),
    ),
    "flip": (lambda x, v: x[:, :v].flip(1), lambda a, k: a[:, :k][:, ::-1]),
    "permute": (lambda x, v: x[:, :v].permute(1, 2, 0), lambda a, k: a[:, :k].transpose(1, 2, 0)),
    "pad": (
        lambda x, v: x[:, :v].pad(((0, 0), (1, 2), (0, 0))),
        lambda a, k: np.pad(a[:, :k], ((0, 0), (1, 2), (0, 0))),
    ),
    "expand": (
        lambda x, v: x[:, :1].expand(2, v, 4) + x[:, :v],
        lambda a, k: np.broadcast_to(a[:, :1], (2, k, 4)) + a[:, :k],
    ),
    "square": (lambda x, v: x[0, :v] @ x[1, :v].T, lambda a, k: a[0, :k] @ a[1, :k].T),
    "relu": (lambda x, v: (x[:, :v] * 2).relu().exp(), lambda a, k: np.exp(np.maximum(a[:, :k] * 2, 0))),
}  # fmt: skip


@pytest.mark.parametrize("name", OPERATIONS)
def test_operations_over_variable_sizes_equal_numpy(name: str) -> None:
    operation, reference = OPERATIONS[name]
    n = Variable("n", 1, 16)
    x = Tensor(CACHE).realize()
    counts = []
    for size in SIZES:
        found = operation(x, n.bind(size))
        counts.append(kernels(lambda found=found: found.realize()))
        np.testing.assert_allclose(found.numpy(), reference(CACHE, size), rtol=1e-5, atol=1e-5)
    assert not any(counts[1:])


def test_plain_loops_and_checked_forms_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPEC", "1")
    n = Variable("n", 0, 16)
    x = Tensor(CACHE).realize()
    for noopt in ("0", "1"):
        monkeypatch.setenv("NOOPT", noopt)
        for size in (0, 3, 16):
            found = x[:, : n.bind(size)].sum((0, 1))
            np.testing.assert_allclose(found.numpy(), CACHE[:, :size].sum((0, 1)), atol=1e-5)


@pytest.mark.long
def test_prove_takes_every_value_of_a_variable_that_has_few(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PROVE", "1")
    x = Tensor([1.0, 2.0, 3.0, 4.5, 7.25]).realize()
    assert x[: Variable("n", 0, 5).bind(3)].sum().item() == 6
    assert "all of 6 values of n from 0 to 5" in capsys.readouterr().err
    n, m = Variable("n", 1, 900), Variable("m", 1, 3)
    y = Tensor.ones(900, 3).contiguous().realize()
    assert y[: n.bind(5), : m.bind(2)].sum().item() == 10
    said = capsys.readouterr().err
    assert "of 2,700 values of m from 1 to 3, n from 1 to 900" in said and "NOT COVERED" not in said


def test_prove_covers_an_index_that_is_a_variable(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PROVE", "1")
    x = Tensor([[1.0, 2.5], [3.0, 4.5], [5.0, 7.25]]).realize()
    n = Variable("position", 0, 2)
    assert x[n.bind(1)].tolist() == [3.0, 4.5] and x.roll(n.bind(2), 0).tolist()[0] == [3.0, 4.5]
    said = capsys.readouterr().err
    assert said.count("all of 3 values of position from 0 to 2") >= 2 and "NOT COVERED" not in said


def test_a_kernel_of_variable_size_that_is_not_its_graph_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from proofgrad.verify.kernels.proof import KernelProver, ProofError

    monkeypatch.setenv("PROVE", "1")
    x, n = Tensor([1.0, 2.0, 3.0, 4.5, 7.0]).contiguous().realize(), Variable("wrong", 1, 4)
    seen: list[Any] = []
    monkeypatch.setattr(compiler(), "kernel_check", lambda *kernel: seen.append(kernel))
    (x[: n.bind(3)] * 3).realize(), (x[1 : n.bind(3) + 1] * 3).realize()
    (name, body, trace), (_, other, _) = seen
    KernelProver()(name, body, trace)
    with pytest.raises(ProofError, match="parameter 1"):
        KernelProver()(name, other, trace)


def test_a_loop_that_is_cut_too_short_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from proofgrad.core.ir.ops import Ops
    from proofgrad.verify.kernels.proof import KernelProver, ProofError

    monkeypatch.setenv("PROVE", "1")
    x, n = Tensor([1.0, 2.0, 3.0, 4.5, 7.0] * 200).contiguous().realize(), Variable("cut", 1, 900)
    seen: list[Any] = []
    monkeypatch.setattr(compiler(), "kernel_check", lambda *kernel: seen.append(kernel))
    (x[: n.bind(3)] * x[: n.bind(3)]).sum().realize()
    ((name, body, trace),) = seen[-1:]
    position = next(k for k, (stage, _) in enumerate(trace) if stage.name == "shorten loops")
    stage, graph = trace[position]
    loops = [node for node in graph.toposort() if node.op is Ops.RANGE]
    (cut,) = [node for node in loops if node.src[0].op is not Ops.CONST]
    wrong = graph.substitute({cut: cut.replace(src=(cut.src[0] - 1,))})
    KernelProver()(name, body, trace[: position + 1])
    with pytest.raises(ProofError, match="shorten loops"):
        KernelProver()(name, body, [*trace[:position], (stage, wrong)])


def test_a_graph_at_a_value_has_numbers_where_the_variable_was() -> None:
    from proofgrad.core.ir.uop import UOp
    from proofgrad.verify.sampled.values import assignments, at_values, variables_of

    n = Variable("n", 0, 9)
    graph = UOp.sink(UOp.range(n * 2 + 1, 0) * (n // 3))
    assert variables_of([graph]) == {"n": (0, 9)}
    assert assignments({"n": (0, 9)}) == [{"n": k} for k in range(10)]
    loop = UOp.range(15, 0)
    assert at_values(graph, {"n": 7}) is UOp.sink(loop * 2)
    ends = [values["n"] for values in assignments({"n": (0, 1000)})]
    assert {0, 1000} <= set(ends) and len(ends) == 5


def test_jit_replays_for_other_values_of_a_variable() -> None:
    n = Variable("n", 1, 16)
    cache = Tensor(CACHE).realize()

    @TinyJit
    def f(x: Tensor, v: Any) -> tuple[Tensor, Tensor]:
        part = cache[:, :v] * x
        return part.sum(1), part

    for size in (3, 5, 16, 1, 9):
        total, part = f(Tensor([2.0]), n.bind(size))
        np.testing.assert_allclose(total.numpy(), 2 * CACHE[:, :size].sum(1), rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(part.numpy(), 2 * CACHE[:, :size])
    with pytest.raises(JitError, match="argument 1"):
        f(Tensor([2.0]), Variable("m", 1, 16).bind(3))


def test_gradient_passes_a_shrink_to_a_variable_size() -> None:
    n = Variable("n", 1, 4)
    x = Tensor([1.0, 2.0, 3.0, 4.0])
    for size in (2, 3):
        part = x[: n.bind(size)]
        (grad,) = (part * part).sum().gradient(x)
        assert grad.tolist() == [2.0 * (k + 1) if k < size else 0.0 for k in range(4)]


# -- sizes ----------------------------------------------------------------------------------------


def test_largest_shape_is_that_of_the_largest_values() -> None:
    x = Tensor(CACHE)[:, : Variable("n", 1, 9).bind(3)]
    assert (x.max_shape, x.max_numel()) == ((2, 9, 4), 72)


def test_equal_sizes_are_one_object() -> None:
    n, m = Variable("n", 1, 10), Variable("m", 2, 5)
    assert normal(n + 1) is normal(1 + n)
    assert product((n, 3, m)) is product((m, n, 3))
    assert difference(n + 4, n) == 4
    assert quotient(product((n, 6)), 3) is normal(n * 2)
    assert quotient(normal(n + 1), 2) is None
    assert (normal(n * m + 1).vmin, normal(n * m + 1).vmax) == (3, 51)
    assert show_size(normal(n.bind(4) * 2 + 1)) == "2*(n=4)+1"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda x, n: n.bind(9), "variable n is from 1 to 4, not 9"),
        (lambda x, n: x[: n + 1], r"shrink to 0 .. n\+1 of an axis of 4"),
        (lambda x, n: x[: n.bind(2)].reshape(3), "cannot reshape"),
        (lambda x, n: x[: n.bind(2)] + x[: n.bind(3)], "cannot broadcast"),
        (lambda x, n: x[:n].sum().item(), r"variable n has no value here; use n.bind\(n\)"),
        (lambda x, n: Variable("a b", 1, 2), "is an identifier"),
        (lambda x, n: Variable("a", 3, 2), "in order"),
    ],
)
def test_wrong_sizes_are_refused(wrong: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        wrong(Tensor([1.0, 2.0, 3.0, 4.0]).realize(), Variable("n", 1, 4))
    assert issubclass(ShapeError, ValueError)


@pytest.mark.parametrize("value", [2.5, 2.0, np.float32(2), "2", None])
def test_variable_takes_no_value_or_bound_that_is_no_whole_number(value: Any) -> None:
    with pytest.raises(TypeError, match="variable n stands for whole numbers, not "):
        Variable("n", 1, 4).bind(value)
    with pytest.raises(TypeError, match="variable n stands for whole numbers, not "):
        Variable("n", 1, value)


def test_bounds_have_tinygrads_names() -> None:
    assert Variable("n", min_val=1, max_val=8) is UOp.variable("n", max_val=8, min_val=1)


def test_variable_takes_tinygrads_types_and_says_how_to_write_multiples() -> None:
    n = Variable("n", 1, 8)
    for dtype in (dtypes.int, "int64", dtypes.index):
        assert Variable("n", 1, 8, dtype=dtype) is n is UOp.variable("n", 1, 8, dtype, 1)
    with pytest.raises(TypeError, match="whole numbers, not for dtypes.float"):
        Variable("n", 1, 8, dtype=dtypes.float)
    with pytest.raises(ValueError, match=r"write 8 \* Variable\('n', 1, 8\)"):
        Variable("n", 1, 64, multiple_of=8)
    assert Tensor.ones(64).contiguous()[: 8 * n.bind(3)].sum().item() == 24


def test_variable_takes_ints_of_numpy_and_of_tensors() -> None:
    n = Variable("n", np.int64(1), 4)
    assert [n.bind(k).val for k in (np.uint8(3), Tensor([3])[0])] == [3, 3]
    assert n is Variable("n", 1, 4)


def test_cache_is_written_at_a_variable_position() -> None:
    position = Variable("position", 0, 7)
    cache = Tensor.zeros(2, 8).contiguous().realize()

    @TinyJit
    def step(x: Tensor, at: Any) -> Tensor:
        cache[:, at : at + 1] = x
        return cache[:, : at + 1].sum(1)

    want = np.zeros((2, 8), np.float32)
    for k in range(8):
        value = np.full((2, 1), k + 1, np.float32)
        want[:, k : k + 1] = value
        found = step(Tensor(value), position.bind(k))
        np.testing.assert_array_equal(found.numpy(), want[:, : k + 1].sum(1))
        np.testing.assert_array_equal(cache.numpy(), want)


def test_a_variable_is_a_number_wherever_a_tensor_may_stand() -> None:
    i, j = Variable("i", 1, 9).bind(3), Variable("j", 0, 300).bind(0)
    assert Tensor(i).item() == 3 and Tensor(i).shape == ()
    assert (Tensor(i) * 2 + 1).tolist() == 7
    assert Tensor(i * i + j).item() == 9 and Tensor(j).item() == 0
    assert (Tensor([1, 2]) + i).tolist() == [4, 5]
    assert (Tensor([1.5, 2.5]) * Tensor(i, dtype="float32")).tolist() == [4.5, 7.5]
    scaled = TinyJit(lambda x, n: (x * Tensor(n)).realize())
    for size in (1, 2, 5, 9):
        x = Tensor([1, 2, size]).realize()
        assert scaled(x, Variable("n", 1, 9).bind(size)).tolist() == [size, 2 * size, size**2]


def test_reduction_over_a_variable_in_vectors_and_unrolled(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop that a variable bounds is none of a prefix: its size is not known where registers are given out."""
    monkeypatch.setenv("CHOICES", "tiled=off vectors=1x4 copies=0x2 buffered=off unroll=3")
    rows = Variable("rows", 1, 13)
    for height in (1, 5):
        x = np.arange(3 * height, dtype=np.int32).reshape(height, 3)
        for count in {1, height}:
            found = Tensor(x)[: rows.bind(count)].mean(0, keepdim=True)
            assert np.allclose(found.numpy(), x[:count].mean(0))
