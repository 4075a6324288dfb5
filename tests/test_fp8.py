"""The 8-bit floats: every code, every float16 and the edges of wider types, on every machine."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import z3
from devices import opened
from proven import fully_proved

from proofgrad import GradientError, Tensor, TinyJit, dtypes
from proofgrad.core.compile.passes.forms import Form, FormError, check_form
from proofgrad.core.ir.dtypes import DType, round_float
from proofgrad.core.ir.evaluate import evaluate, from_bits, to_bits
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.data.errors import DtypeError
from proofgrad.verify.encode import semantics

FP8 = pytest.mark.parametrize("dtype", dtypes.fp8s, ids=lambda d: d.name)
CODES = np.arange(256, dtype=np.uint8)
HALVES = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
TORCH_NAMES = {
    dtypes.fp8e4m3: "float8_e4m3fn", dtypes.fp8e5m2: "float8_e5m2",
    dtypes.fp8e4m3fnuz: "float8_e4m3fnuz", dtypes.fp8e5m2fnuz: "float8_e5m2fnuz",
}  # fmt: skip


@pytest.fixture(params=("CPU", "CL", "REFERENCE"))
def device(request: pytest.FixtureRequest) -> str:
    return opened(request.param)


def same(found: object, expected: object) -> bool:
    """Equal numbers and signs of zeros; any NaN is any NaN."""
    a, b = np.asarray(found, np.float64), np.asarray(expected, np.float64)
    numbers = ~np.isnan(b)
    signs = np.array_equal(np.signbit(a)[numbers], np.signbit(b)[numbers])
    return np.array_equal(a, b, equal_nan=True) and signs


def near_codes(dtype: DType, wide: type) -> np.ndarray:
    """All numbers of the type, the ties between them, and the neighbours of both, in a wide type."""
    values = [from_bits(code, dtype) for code in range(128)]
    numbers = sorted([v for v in values if math.isfinite(v)])
    numbers += [numbers[-1] + (numbers[-1] - numbers[-2]), 1e30]
    ties = [(a + b) / 2 for a, b in itertools.pairwise(numbers)]
    exact = np.array([*numbers, *ties], wide)
    around = [exact, np.nextafter(exact, wide(np.inf)), np.nextafter(exact, wide(-np.inf))]
    found = np.concatenate([*around, np.array([np.inf, np.nan], wide)])
    return np.concatenate([found, -found])


def rounded(values: np.ndarray, dtype: DType) -> list[float]:
    return [round_float(float(v), dtype) for v in values]


# -- the formats ------------------------------------------------------------------------------------


@FP8
def test_every_code_has_the_value_that_torch_gives_it(dtype: DType) -> None:
    torch = pytest.importorskip("torch")
    expected = torch.from_numpy(CODES).view(getattr(torch, TORCH_NAMES[dtype])).float().numpy()
    assert same([from_bits(code, dtype) for code in range(256)], expected)


@FP8
def test_the_bits_of_a_value_are_its_code(dtype: DType) -> None:
    for code in range(256):
        value = float(from_bits(code, dtype))
        nan = 0x80 if dtype in dtypes.fp8_fnuz else 0x7F
        assert to_bits(value, dtype) == code or (math.isnan(value) and to_bits(value, dtype) == nan)


@FP8
def test_every_float16_is_rounded_as_ml_dtypes_rounds_it(dtype: DType) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    with np.errstate(all="ignore"):
        expected = HALVES.astype(getattr(ml_dtypes, TORCH_NAMES[dtype])).astype(np.float32)
    assert same(rounded(HALVES, dtype), expected)


@FP8
def test_every_float16_that_fits_is_rounded_as_torch_rounds_it(dtype: DType) -> None:
    """Beyond the largest number torch gives 448 for e4m3, even of an infinity; see docs/numerics.md."""
    torch = pytest.importorskip("torch")
    fits = HALVES if dtype is not dtypes.fp8e4m3 else HALVES[~(abs(HALVES) > 464)]
    expected = torch.from_numpy(fits).to(getattr(torch, TORCH_NAMES[dtype])).float().numpy()
    assert same(rounded(fits, dtype), expected)


def test_overflow_is_nan_where_there_is_no_infinity() -> None:
    edges = [448.0, 464.0, 465.0, -1e9, math.inf]
    assert same(Tensor(edges).cast("fp8e4m3").tolist(), [448, 448, math.nan, math.nan, math.nan])
    edges = [57344.0, 61439.0, 61440.0, -1e9, math.inf]
    wide = [57344, 57344, math.inf, -math.inf, math.inf]
    assert Tensor(edges).cast("fp8e5m2").tolist() == wide
    edges = [240.0, 247.99, -247.99, 248.0, 1e9, -math.inf, math.nan]
    narrow = [240, 240, -240, math.nan, math.nan, math.nan, math.nan]
    assert same(Tensor(edges).cast("fp8e4m3fnuz").tolist(), narrow)
    edges = [57344.0, 61439.0, -61439.0, 61440.0, -1e9, math.inf, math.nan]
    narrow = [57344, 57344, -57344, math.nan, math.nan, math.nan, math.nan]
    assert same(Tensor(edges).cast("fp8e5m2fnuz").tolist(), narrow)


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        (dtypes.fp8e4m3, (4, 3)), (dtypes.fp8e5m2, (5, 2)), (dtypes.fp8e4m3fnuz, (4, 3)),
        (dtypes.fp8e5m2fnuz, (5, 2)), (dtypes.float16, (5, 10)),
        (dtypes.bfloat16, (8, 7)), (dtypes.float32, (8, 23)), (dtypes.float64, (11, 52)),
    ],
)  # fmt: skip
def test_finfo_is_exponent_and_fraction(dtype: DType, expected: tuple[int, int]) -> None:
    assert dtypes.finfo(dtype) == expected
    with pytest.raises(ValueError, match="no float"):
        dtypes.finfo(dtypes.int32)


def test_the_ends_of_a_type() -> None:
    assert (dtypes.min(dtypes.fp8e4m3), dtypes.max(dtypes.fp8e4m3)) == (-448.0, 448.0)
    assert (dtypes.min(dtypes.fp8e5m2), dtypes.max(dtypes.fp8e5m2)) == (-math.inf, math.inf)
    assert (dtypes.min(dtypes.fp8e4m3fnuz), dtypes.max(dtypes.fp8e4m3fnuz)) == (-240.0, 240.0)
    assert (dtypes.min(dtypes.fp8e5m2fnuz), dtypes.max(dtypes.fp8e5m2fnuz)) == (-57344.0, 57344.0)
    assert dtypes.is_float(dtypes.fp8e4m3) and Tensor.zeros(1, dtype="fp8e5m2").is_floating_point()


# -- the meanings agree -----------------------------------------------------------------------------


def meaning(value: float, source: DType, target: DType) -> float:
    """CAST by the SMT terms; of a code the term is its bits."""
    given = z3.BitVecVal(to_bits(value, source), 8) if source.is_code else None
    term = semantics.constant(source, value) if given is None else given
    found = z3.simplify(semantics.cast(term, source, target))
    if target.is_bool:
        return float(z3.is_true(found))
    if target.is_float:
        if found.isNaN():
            return math.nan
        return float(from_bits(z3.simplify(z3.fpToIEEEBV(found)).as_long(), target))
    return float(from_bits(found.as_long(), target))


@FP8
@pytest.mark.parametrize("target", (*dtypes.all, *dtypes.fp8s), ids=lambda d: d.name)
def test_casts_of_all_codes_mean_the_same_to_the_solver(dtype: DType, target: DType) -> None:
    values = [float(from_bits(code, dtype)) for code in range(256)]
    found = [meaning(value, dtype, target) for value in values]
    assert same(found, [float(evaluate(Ops.CAST, target, (v,))) for v in values])


@FP8
@pytest.mark.parametrize("wide", (np.float16, np.float32, np.float64))
def test_casts_to_codes_mean_the_same_to_the_solver(dtype: DType, wide: type) -> None:
    source = getattr(dtypes, np.dtype(wide).name)
    with np.errstate(all="ignore"):
        values = near_codes(dtype, wide)[:: 7 if wide is np.float64 else 3]
    found = [meaning(float(v), source, dtype) for v in values]
    assert same(found, rounded(values, dtype))


@FP8
@pytest.mark.parametrize("source", (dtypes.bool, *dtypes.ints), ids=lambda d: d.name)
def test_casts_of_integers_to_codes_mean_the_same_to_the_solver(
    dtype: DType, source: DType
) -> None:
    near = [0, 1, 17, 18, 19, 127, 464, 465, 61439, 61440, 2**24 + 1, 2**31 - 1, 2**63 - 1]
    numbers = [sign * v for v in near for sign in (1, -1)]
    inside = [v for v in numbers if (source.lo or 0) <= v <= (source.hi or 0)]
    given = [bool(v) for v in inside] if source.is_bool else inside
    found = [meaning(v, source, dtype) for v in given]
    assert same(found, [evaluate(Ops.CAST, dtype, (v,)) for v in given])


# -- machines ---------------------------------------------------------------------------------------


@FP8
def test_machines_read_every_code(dtype: DType, device: str) -> None:
    stored = Tensor(CODES, device=device).bitcast(dtype)
    expected = [from_bits(code, dtype) for code in range(256)]
    assert same(stored.numpy(), expected) and same(stored.tolist(), expected)
    assert same(stored.double().numpy(), expected) and same(stored.half().numpy(), expected)
    numbers = ~np.isnan(expected)  # which NaN is a machine's business
    assert stored.bitcast(dtypes.uint8).numpy()[numbers].tolist() == CODES[numbers].tolist()


@FP8
@pytest.mark.parametrize("wide", (np.float16, np.float32, np.float64))
def test_machines_round_to_the_nearest_code(dtype: DType, wide: type, device: str) -> None:
    with np.errstate(all="ignore"):
        few = HALVES[::97] if device == "REFERENCE" else HALVES
        values = np.concatenate([near_codes(dtype, wide), few.astype(wide)])
    assert same(Tensor(values, device=device).cast(dtype).numpy(), rounded(values, dtype))


@FP8
@pytest.mark.parametrize("source", (dtypes.bool, *dtypes.ints, dtypes.bfloat16, *dtypes.fp8s))
def test_machines_round_other_types_once(dtype: DType, source: DType, device: str) -> None:
    numbers = Tensor([0, 1, 2, 19, 100, 127], dtype=source, device=device)
    assert same(numbers.cast(dtype).numpy(), rounded(np.array(numbers.tolist()), dtype))


# -- Tensors ----------------------------------------------------------------------------------------


def test_a_result_has_the_type_of_the_operands() -> None:
    x, y = Tensor([1.5, 448.0], dtype="fp8e4m3"), Tensor([2.0, 2.0], dtype="fp8e5m2")
    for same in (
        x + x,
        x + 1,
        2.5 - x,
        -x,
        x.exp(),
        x.sum(),
        x.max(),
        x.mean(),
        x @ x,
        x.softmax(),
        x**2,
    ):
        assert same.dtype is dtypes.fp8e4m3
    for same in (
        x.relu(),
        x.gelu(),
        x.maximum(x),
        x // 2,
        x % 2,
        x.cumsum(),
        x / 3,
        Tensor(2.0) * x,
        x.var(),
    ):
        assert same.dtype is dtypes.fp8e4m3
    assert (x * y).dtype is (x @ y).dtype is dtypes.float32 and (x * y).tolist() == [3.0, 896.0]
    assert (x + Tensor([1.0], dtype="float16")).dtype is dtypes.float16
    assert (x == x.float()).dtype is dtypes.bool and (x < 1000).tolist() == [True, True]
    assert x.sum(dtype="float32").item() == 449.5 and (x @ y).item() == 899.0


@FP8
@pytest.mark.parametrize("name", ("add", "sub", "mul", "div", "maximum", "minimum", "pow"))
def test_every_pair_of_codes_is_computed_in_float32_and_rounded_once(
    name: str, dtype: DType
) -> None:
    a, b = np.meshgrid(CODES[::3], CODES)
    x, y = [Tensor(part.copy()).bitcast(dtype) for part in (a, b)]
    found = getattr(x, name)(y)
    assert found.dtype is dtype
    assert same(found.numpy(), getattr(x.float(), name)(y.float()).cast(dtype).numpy())
    if name in ("add", "sub", "mul", "div"):
        with np.errstate(all="ignore"):
            operation = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide}
            exact = operation[name](x.float().numpy(), y.float().numpy())
        assert same(found.numpy(), np.reshape(rounded(exact.ravel(), dtype), exact.shape))


@FP8
@pytest.mark.parametrize("name", ("exp", "log", "sqrt", "sin", "tanh", "sigmoid", "gelu", "silu", "neg", "reciprocal",
                                  "erf", "log1p", "floor", "abs", "square", "softplus", "rsqrt"))  # fmt: skip
def test_functions_of_every_code_are_rounded_once(name: str, dtype: DType) -> None:
    x = Tensor(CODES).bitcast(dtype)
    found, wide = getattr(x, name)(), getattr(x.float(), name)().cast(dtype)
    assert found.dtype is dtype and same(found.numpy(), wide.numpy())


@FP8
def test_reductions_of_codes_run_in_float32(dtype: DType) -> None:
    values = np.random.default_rng(2).standard_normal((6, 40)).astype(np.float32)
    x = Tensor(values).cast(dtype)
    exact = x.numpy().astype(np.float64)
    assert same(x.sum(1).numpy(), np.array(rounded(exact.sum(1), dtype)))
    for name in ("mean", "var", "std", "max", "min", "logsumexp"):
        assert same(getattr(x, name)(1).numpy(), getattr(x.float(), name)(1).cast(dtype).numpy())
    for name in ("softmax", "log_softmax", "layernorm", "cumsum", "cummax"):
        wide, found = [
            getattr(part, name)(1 if name != "layernorm" else -1) for part in (x.float(), x)
        ]
        wide, found = [part[0] if isinstance(part, tuple) else part for part in (wide, found)]
        assert found.dtype is dtype and same(found.numpy(), wide.cast(dtype).numpy())
    assert same((x @ x.T).numpy(), (x.float() @ x.float().T).cast(dtype).numpy())


def test_elements_move_and_are_chosen_as_they_are() -> None:
    x = Tensor([[1.0, -2.0, 3.25], [4.0, math.nan, -0.0]]).cast("fp8e4m3")
    rows = x.tolist()
    for moved, expected in (
        (x.T, [list(row) for row in zip(*rows)]),
        (x[:, ::-1], [row[::-1] for row in rows]),
        (x[Tensor([1, 0])], rows[::-1]),
        (x.cat(x), rows + rows),
        (x.pad(((0, 1), (0, 0)), value=2.0), [*rows, [2.0, 2.0, 2.0]]),
        (x.isnan().where(0.5, x), [rows[0], [4.0, 0.5, -0.0]]),
    ):
        assert moved.dtype is dtypes.fp8e4m3 and np.array_equal(
            moved.tolist(), expected, equal_nan=True
        )
    assert x[0].sort()[0].tolist() == [-2.0, 1.0, 3.25] and x[0].argmin().item() == 1
    assert x[1].argmax().item() == 1  # NaN
    assert x[0].floor().tolist() == [1.0, -2.0, 3.0] and not x.isinf().any().item()


def test_a_written_element_is_rounded() -> None:
    x = Tensor([1.0, 2.0, 3.0]).cast("fp8e4m3").realize()
    x[1] = 3.3
    assert x.tolist() == [1.0, 3.25, 3.0]


def test_what_computes_with_codes_is_refused() -> None:
    x = Tensor([1.0], dtype="fp8e4m3")
    for wrong in (lambda: ~x, lambda: x & x, lambda: x.alu(Ops.ADD, x), lambda: x.gradient(x),
                  lambda: Tensor.rand(2, dtype="fp8e5m2"), lambda: x.bitcast("float16")):  # fmt: skip
        with pytest.raises(DtypeError):
            wrong()
    node = Tensor([1.0], dtype="fp8e4m3").uop
    with pytest.raises(FormError, match="only stored"):
        check_form(Form.TENSOR_GRAPH, UOp.sink(node.alu(Ops.ADD, node)))


@pytest.mark.parametrize("dtype", dtypes.fp8s, ids=str)
def test_gradients_pass_through_codes_as_through_other_casts(dtype: DType) -> None:
    x = Tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], requires_grad=True)
    c = x.cast(dtype)

    def gradient(y: Tensor) -> list[list[float]]:
        return y.float().sum().gradient(x)[0].tolist()

    assert gradient(c) == [[1.0] * 3] * 2
    assert gradient(c.cast("fp8e5m2").half() * 3) == [[3.0] * 3] * 2
    moved = c.T.reshape(6).pad((1, 1))[1:].flip(0)[:4]
    assert gradient(moved.contiguous().float() * Tensor([1.0, 2.0, 3.0, 4.0])) == [[0.0, 0.0, 3.0], [0.0, 4.0, 2.0]]  # fmt: skip
    assert gradient(c[:1].expand(4, 3)) == [[4.0] * 3, [0.0] * 3]
    assert gradient((x > 2).where(c, 0).cat(c)) == [[1.0, 1.0, 2.0], [2.0] * 3]
    assert gradient(c[Tensor([1, 1, 0])]) == [[1.0] * 3, [2.0] * 3]
    assert gradient(c.gather(1, Tensor([[1], [2]]))) == [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    assert gradient(c * 2 + c) == [[3.0] * 3] * 2
    assert gradient(c.relu().max(1)) == [[0.0, 0.0, 1.0]] * 2
    assert gradient(c @ Tensor([1.0, 2.0, 3.0]).cast(dtype)) == [[1.0, 2.0, 3.0]] * 2


def test_gradients_of_codes_are_not_rounded_to_them() -> None:
    x = Tensor([1.0, 2.0], requires_grad=True)
    small = Tensor([2.0**-20, 0.1])
    assert (x.cast("fp8e4m3").float() * small).sum().gradient(x)[0].tolist() == small.tolist()
    (found,) = (x.cast("fp8e4m3").expand(3, 2).float() * 0.1).sum().gradient(x)
    assert found.dtype is dtypes.float32 and found.allclose(Tensor([0.3, 0.3])).item()


def test_ways_of_gradients_through_codes_are_lost_as_others_are() -> None:
    x = Tensor([1.0, 2.0], requires_grad=True)
    recorded = TinyJit(lambda x: x.cast("fp8e5m2").realize())
    with Tensor.no_grad():
        ungiven = x.cast("fp8e5m2")
    for cut in (x.cast("fp8e5m2").detach(), ungiven, [recorded(x) for _ in range(3)][-1]):
        with pytest.raises(GradientError, match="no gradient passes from this value"):
            cut.float().sum().gradient(x)
    assert x.cast("fp8e5m2").realize().float().sum().gradient(x)[0].tolist() == [1.0, 1.0]


def test_a_code_that_is_to_take_a_gradient_is_refused() -> None:
    with pytest.raises(GradientError, match="fp8e4m3: 8-bit floats are only stored; keep it in"):
        Tensor([1.0], dtype="fp8e4m3", requires_grad=True)


@pytest.mark.parametrize("dtype", ["fp8e4m3", "fp8e5m2"])
def test_weights_scaled_to_codes_learn(dtype: str) -> None:
    rng = np.random.default_rng(0)
    x = Tensor(rng.normal(size=(32, 4)).astype(np.float32))
    y = x @ Tensor([[1.0], [-2.0], [0.5], [3.0]])
    weight = Tensor.zeros(4, 1, requires_grad=True)

    def coded(t: Tensor) -> Tensor:
        scale = (t.abs().max() / 448.0).detach() + 1e-12
        return (t / scale).cast(dtype).float() * scale

    def step() -> Tensor:
        loss = (coded(x) @ coded(weight) - y).square().mean()
        (gradient,) = loss.gradient(weight)
        weight.assign(weight.detach() - gradient * 0.2)
        return loss.realize(weight)

    step = TinyJit(step)
    losses = [step().item() for _ in range(20)]
    assert losses[-1] < losses[0] / 50


def test_codes_are_shared_with_torch_in_both_directions() -> None:
    torch = pytest.importorskip("torch")
    for dtype in dtypes.fp8s:
        theirs = torch.tensor([1.0, -2.5]).to(getattr(torch, TORCH_NAMES[dtype]))
        mine = Tensor.from_dlpack(theirs)
        assert mine.dtype is dtype and mine.tolist() == [1.0, -2.5]
        back = torch.from_dlpack(Tensor([0.5, 3.0], dtype=dtype))
        assert back.dtype is theirs.dtype and back.float().tolist() == [0.5, 3.0]


@pytest.mark.parametrize("name", [dtype.name for dtype in dtypes.fp8s])
def test_codes_as_integers_are_proven(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    """A code is no integer: of what becomes of it is known alone that equal codes give equal integers."""
    with fully_proved(capfd):
        found = [
            Tensor([1.0, 2.0, 0.0], dtype=name).cast(kind).tolist() for kind in ("int32", "bool")
        ]
    assert found == [[1, 2, 0], [True, True, False]]
