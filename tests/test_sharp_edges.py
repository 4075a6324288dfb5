"""Where frameworks surprise their users, row by row: what each does here, with the expected result.

Every row was measured at tinygrad's commit a9069c17, where the answer is another one.
"""

from __future__ import annotations

import math
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from proofgrad import Context, GlobalCounters, Tensor, dtypes

ROOT = Path(__file__).parent.parent


# -- order and mutation -------------------------------------------------------------------------


def test_two_lazy_random_tensors_differ_in_any_order_of_reading() -> None:
    """tinygrad #16520."""
    r1, r2 = Tensor.rand(4), Tensor.rand(4)
    second, first = r2.tolist(), r1.tolist()
    assert first != second


def test_reader_built_before_an_assign_to_a_view_keeps_the_old_value() -> None:
    """tinygrad #17074."""
    x = Tensor([1, 2]).contiguous().realize()
    reader = x + 10
    x[:1].assign(Tensor([9]))
    Tensor.realize(reader, x)
    assert reader.tolist() == [11, 12]
    assert x.tolist() == [9, 2]


# -- floats -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("compute", "operand"),
    [
        (lambda x: x * 0, math.inf),
        (lambda x: x / x, 0.0),
        (lambda x: x - x, math.inf),
        (lambda x: x / x, math.inf),
        (lambda x: x * 0, math.nan),
    ],
)
def test_what_ieee_754_calls_nan_is_nan(
    compute: Callable[[Tensor], Tensor], operand: float
) -> None:
    assert math.isnan(compute(Tensor([operand])).item())
    assert math.isnan(compute(Tensor([operand]).realize()).item())


def test_minus_zero_plus_zero_is_plus_zero() -> None:
    assert math.copysign(1, (Tensor([-0.0]) + 0).item()) == 1.0


def test_gradient_of_the_branch_not_taken_is_nan_as_documented() -> None:
    """tinygrad #12409: the square root's derivative at a negative number is NaN; so it is in torch."""
    x = Tensor([-1.0, 4.0], requires_grad=True)
    (gradient,) = (x > 0).where(x.sqrt(), 0.0).sum().gradient(x)
    assert math.isnan(gradient.tolist()[0])
    safe = (x > 0).where((x > 0).where(x, 1.0).sqrt(), 0.0).sum().gradient(x)[0]
    assert safe.tolist() == [0.0, 0.25]
    assert "branch not taken" in (ROOT / "docs/coming-from-torch.md").read_text()


# -- integers -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "dtype"),
    [(2**31, None), (2**63, None), (300, "int8"), (-1, "uint8"), (2**64, "uint64")],
)
def test_numbers_that_do_not_fit_raise(value: int, dtype: str | None) -> None:
    with pytest.raises(OverflowError, match=str(value)):
        Tensor([value], dtype=dtype)


def test_scalar_that_does_not_fit_its_tensor_raises() -> None:
    with pytest.raises(OverflowError, match="1000"):
        Tensor([1], dtype="int8") + 1000


def test_machine_integers_wrap_as_documented() -> None:
    assert (Tensor([200], dtype="uint8") + 100).item() == 300 - 256
    assert Tensor([2**30] * 3).sum(dtype=dtypes.int32).item() == 3 * 2**30 - 2**32
    assert "wrap" in (ROOT / "docs/guide.md").read_text()


def test_division_of_integers_by_zero_is_zero_as_documented() -> None:
    assert (Tensor([1, -7]) // Tensor([0, 0])).tolist() == [0, 0]
    assert (Tensor([1, -7]) % Tensor([0, 0])).tolist() == [0, 0]
    assert "x // 0 = 0" in (ROOT / "core/ir/ops.py").read_text()


# -- indexing -----------------------------------------------------------------------------------


def test_static_index_out_of_bounds_raises() -> None:
    with pytest.raises(IndexError, match=r"5.*3"):
        Tensor([1, 2, 3])[5]


def test_computed_index_out_of_bounds_gives_zero_as_documented() -> None:
    with Context(CHECK=0):
        assert Tensor([1, 2, 3])[Tensor([4, 0]) + 1].tolist() == [0, 2]
    assert "out of bounds" in (ROOT / "docs/coming-from-torch.md").read_text()


def test_boolean_mask_selects() -> None:
    x = Tensor([1, 2, 3])
    assert x[x > 1].tolist() == [2, 3]


# -- errors where the mistake is ----------------------------------------------------------------


def test_shapes_that_do_not_broadcast_raise_at_the_plus() -> None:
    with pytest.raises(ValueError, match=r"\(3,\).*\(2,\)") as caught:
        Tensor([1, 2, 3]) + Tensor([1, 2])
    assert caught.traceback[0].path == Path(__file__)


def test_cat_of_wrong_shapes_says_shapes_and_axis() -> None:
    with pytest.raises(ValueError, match=r"(?s)\(2, 3\).*\(3, 4\)"):
        Tensor.ones(2, 3).cat(Tensor.ones(3, 4))


def test_unknown_device_has_a_suggestion() -> None:
    with pytest.raises(RuntimeError, match="did you mean CUDA"):
        Tensor([1], device="CUDDA")


def test_unknown_dtype_has_a_suggestion() -> None:
    with pytest.raises(ValueError, match=r"did you mean float32"):
        Tensor([1.0], dtype="float31")


# -- interop ------------------------------------------------------------------------------------


def test_numpy_takes_tensors_as_arrays() -> None:
    t = Tensor([1.0, 2.0, 3.0])
    assert np.asarray(t).dtype == np.float32
    assert np.asarray(t).tolist() == [1.0, 2.0, 3.0]
    assert (np.ones(3, np.float32) * t).tolist() == [1.0, 2.0, 3.0]
    assert (t * np.ones(3, np.float32)).tolist() == [1.0, 2.0, 3.0]


def test_tensors_of_tensors_and_python_numbers() -> None:
    assert Tensor([Tensor(1), Tensor(2)]).tolist() == [1, 2]
    assert float(Tensor([2.5])) == 2.5
    assert int(Tensor([3])) == 3
    assert [10, 20, 30][Tensor(1)] == 20


@pytest.mark.parametrize(
    "name",
    [
        "__array__",
        "__dlpack__",
        "__dlpack_device__",
        "_repr_html_",
        "__float__",
        "__int__",
        "__index__",
    ],
)
def test_protocols_of_python_and_arrays_are_there(name: str) -> None:
    assert callable(getattr(Tensor([1.0]), name))


# -- gradients, kernels, tools ------------------------------------------------------------------


def test_backward_from_one_element_of_any_shape() -> None:
    x = Tensor([2.0], requires_grad=True)
    y = x * x
    assert y.shape == (1,)
    y.backward()
    assert x.grad is not None
    assert x.grad.tolist() == [4.0]


def test_chain_on_random_numbers_is_one_kernel() -> None:
    a = Tensor.randn(4, 4)
    d = ((a + 1) * 2).relu()
    before = GlobalCounters.kernel_count
    d.realize()
    assert GlobalCounters.kernel_count - before == 1


@pytest.mark.long
def test_doctor_is_clean() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error::RuntimeWarning", "-m", "proofgrad", "doctor"],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0
    assert "Warning" not in done.stderr
    rows = [line for line in done.stdout.splitlines() if line.startswith("device ")]
    assert rows and not re.search(r"available.*is available", done.stdout)
    assert any(row.split()[1] == "CPU" and row.endswith("available") for row in rows)
