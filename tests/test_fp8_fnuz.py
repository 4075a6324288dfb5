"""The 8-bit floats without infinities and without -0.0, against a definition of their codes, and torch."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from proofgrad import Tensor, dtypes
from proofgrad.core.ir.dtypes import DType
from proofgrad.nn.state import safe_load, safe_save, torch_load

FNUZ = pytest.mark.parametrize("dtype", dtypes.fp8_fnuz, ids=lambda d: d.name)
CODES = np.arange(256, dtype=np.uint8)
BIAS = {"fp8e4m3fnuz": 8, "fp8e5m2fnuz": 16}
FRACTION = {"fp8e4m3fnuz": 3, "fp8e5m2fnuz": 2}


def values(dtype: DType) -> np.ndarray:
    """What the codes 0 .. 255 stand for."""
    bits, found = FRACTION[dtype.name], []
    for code in range(128):
        exponent, fraction = code >> bits, code % (1 << bits)
        digits = fraction + ((1 << bits) if exponent else 0)
        found.append(digits * 2.0 ** (max(exponent, 1) - BIAS[dtype.name] - bits))
    return np.array([*found, math.nan, *[-value for value in found[1:]]])


def nearest(exact: np.ndarray, dtype: DType) -> np.ndarray:
    """Codes of doubles: the nearest of the values, the even one of two; NaN from half a step beyond the largest."""
    numbers = values(dtype)[:128]
    size = np.where(np.isnan(exact), np.inf, abs(exact))
    ties = (np.append(numbers[1:], 2 * numbers[-1] - numbers[-2]) + numbers) / 2
    below = np.searchsorted(ties, size, "left")  # as many ties are smaller
    at_tie = size == ties[np.minimum(below, 127)]
    code = below + (at_tie & (below % 2 == 1))
    signed = np.where((exact < 0) & (code > 0), code + 128, code)
    return np.where(code > 127, 128, signed).astype(np.uint8)


def code_of(x: Tensor) -> np.ndarray:
    return np.array(x.bitcast("uint8").numpy())


def wide(dtype: DType, kind: type) -> np.ndarray:
    """The numbers, the ties, their neighbours, what is too large or too small, of both signs."""
    numbers = values(dtype)[:128]
    beyond = [numbers[-1] * 2, 65504.0, math.inf, math.nan, 1e-7, 0.0]
    last = numbers[-1] + (numbers[-1] - numbers[-2]) / 2
    with np.errstate(all="ignore"):
        exact = np.array([*numbers, *(numbers[1:] + numbers[:-1]) / 2, *beyond, last]).astype(kind)
        near = [exact, np.nextafter(exact, kind(np.inf)), np.nextafter(exact, kind(0))]
    found = np.concatenate(near)
    return np.concatenate([found, -found])


@FNUZ
def test_every_code_is_the_number_of_the_definition_and_of_torch(dtype: DType) -> None:
    torch = pytest.importorskip("torch")
    found = Tensor(CODES).bitcast(dtype).float().numpy()
    assert np.array_equal(found, values(dtype), equal_nan=True) and not np.signbit(found[0])
    theirs = torch.from_numpy(CODES).view(getattr(torch, f"float8_{dtype.name[3:]}")).float()
    assert np.array_equal(found, theirs.numpy(), equal_nan=True)


@FNUZ
def test_every_code_comes_back_from_every_float(dtype: DType) -> None:
    stored = Tensor(CODES).bitcast(dtype)
    for kind in dtypes.floats:
        assert code_of(stored.cast(kind).cast(dtype)).tolist() == CODES.tolist(), kind


@FNUZ
@pytest.mark.parametrize("kind", (np.float16, np.float32, np.float64))
@pytest.mark.parametrize("device", ("CPU", "REFERENCE"))
def test_floats_are_rounded_to_the_nearest_code(dtype: DType, kind: type, device: str) -> None:
    exact = wide(dtype, kind)
    found = code_of(Tensor(exact, device=device).cast(dtype))
    assert found.tolist() == nearest(exact.astype(np.float64), dtype).tolist()


@FNUZ
def test_floats_are_rounded_as_torch_rounds_them(dtype: DType) -> None:
    torch = pytest.importorskip("torch")
    theirs = getattr(torch, f"float8_{dtype.name[3:]}")
    halves = np.arange(1 << 16, dtype=np.uint16)
    for bits, kind in ((halves, "float16"), (halves, "bfloat16")):
        given = torch.from_numpy(bits.view(np.int16)).view(getattr(torch, kind))
        expected = given.to(theirs).view(torch.uint8).numpy()
        assert np.array_equal(code_of(Tensor(bits).bitcast(kind).cast(dtype)), expected), kind
    exact = wide(dtype, np.float32)
    expected = torch.from_numpy(exact).to(theirs).view(torch.uint8).numpy()
    assert np.array_equal(code_of(Tensor(exact).cast(dtype)), expected)


@FNUZ
def test_a_zero_has_no_sign(dtype: DType) -> None:
    x = Tensor([-0.0, -1e-9, 0.0]).cast(dtype)
    for zeros in (x, -x, x * -1, Tensor([-0.0, 0.0, -0.0], dtype=dtype)):
        assert code_of(zeros).tolist() == [0, 0, 0]


@pytest.mark.parametrize("name", ("add", "mul"))
def test_all_pairs_of_codes_are_rounded_once(name: str) -> None:
    dtype = dtypes.fp8e4m3fnuz
    a, b = [Tensor(part.copy()).bitcast(dtype) for part in np.meshgrid(CODES, CODES)]
    x, y = np.meshgrid(values(dtype), values(dtype))
    exact = x + y if name == "add" else x * y  # in 24 digits, too
    assert np.array_equal(code_of(getattr(a, name)(b)), nearest(exact, dtype))


@FNUZ
@pytest.mark.parametrize("other", dtypes.fp8s, ids=lambda d: d.name)
def test_codes_of_one_kind_become_codes_of_another(dtype: DType, other: DType) -> None:
    given = Tensor(CODES).bitcast(other)
    exact = given.double().numpy()
    assert np.array_equal(code_of(given.cast(dtype)), nearest(exact, dtype))


@FNUZ
@pytest.mark.parametrize("kind", dtypes.ints, ids=lambda d: d.name)
def test_integers_to_codes_and_back(dtype: DType, kind: DType) -> None:
    near = [0, 1, 17, 18, 19, 127, 240, 247, 248, 61439, 61440, 2**31 - 1, -1, -19, -247, -(2**20)]
    whole = [n for n in near if (kind.lo or 0) <= n <= (kind.hi or 0)]
    found = Tensor(whole, dtype=kind).cast(dtype)
    assert np.array_equal(code_of(found), nearest(np.array(whole, np.float64), dtype))
    assert Tensor([2.5, 14.0, math.nan], dtype=dtype).cast(kind).tolist() == [2, 14, 0]


@FNUZ
def test_it_is_printed_and_named(dtype: DType) -> None:
    assert repr(dtype) == f"dtypes.{dtype.name}" and dtypes.fp8s[2:] == dtypes.fp8_fnuz
    x = Tensor([1.5, -3.0], dtype=dtype.name)
    assert x.dtype is dtype and x.nbytes() == 2 and x.tolist() == [1.5, -3.0]
    assert (x + x).dtype is dtype and (x + Tensor([1.0], dtype="float16")).dtype is dtypes.float16
    assert (x + Tensor([1.0], dtype="fp8e5m2")).dtype is dtypes.float32


@FNUZ
def test_files_and_torch_have_it(dtype: DType, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    theirs = Tensor(CODES).bitcast(dtype)
    safe_save({"x": theirs}, str(tmp_path / "x.safetensors"))
    assert f'"F8_{dtype.name[3:].upper()}"'.encode() in (tmp_path / "x.safetensors").read_bytes()
    loaded = safe_load(str(tmp_path / "x.safetensors"))["x"]
    assert loaded.dtype is dtype and code_of(loaded).tolist() == CODES.tolist()
    given = torch.from_numpy(CODES).view(getattr(torch, f"float8_{dtype.name[3:]}"))
    torch.save({"x": given}, tmp_path / "x.pt")
    loaded = torch_load(str(tmp_path / "x.pt"))["x"]
    assert loaded.dtype is dtype and code_of(loaded).tolist() == CODES.tolist()


def test_sets_of_types_and_the_type_of_python_numbers() -> None:
    assert dtypes.sints == (dtypes.int8, dtypes.int16, dtypes.int32, dtypes.int64)
    assert dtypes.uints == (dtypes.uint8, dtypes.uint16, dtypes.uint32, dtypes.uint64)
    assert dtypes.from_py(True) is dtypes.bool and dtypes.from_py(3) is dtypes.default_int
    assert dtypes.from_py(2.5) is dtypes.from_py([]) is dtypes.from_py([1, 2.5]) is dtypes.float
    assert dtypes.from_py((True, 2)) is dtypes.int and dtypes.from_py([True, False]) is dtypes.bool
    assert dtypes.is_bool(dtypes.bool) and not dtypes.is_bool(dtypes.uint8)
    with pytest.raises(ValueError, match="only numbers have a type, not 'a'"):
        dtypes.from_py("a")
