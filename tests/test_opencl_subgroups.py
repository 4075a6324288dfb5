"""Subgroups of OpenCL as warps: what is printed, which devices have them, what a device that has them computes, and mistakes in it."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from proven import fully_proved
from test_groups import rows
from test_held_by_warps import WORK, kernel
from test_opencl_backend import Drivers

from proofgrad import Context, Device, Tensor, schedule
from proofgrad.backends.opencl import subgroups
from proofgrad.backends.opencl.dialect import OPENCL, WITH_SUBGROUPS
from proofgrad.backends.opencl.emit import emit
from proofgrad.core.compile.lowering.held_by_warps import held_by_warps
from proofgrad.core.compile.machine.target import DeviceError
from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.runtime.realize import compiler

MOST_DEVICES = 4


@pytest.fixture(scope="module")
def device() -> str:
    """The first OpenCL device that has them."""
    for name in ("CL", *[f"CL:{k}" for k in range(1, MOST_DEVICES)]):
        try:
            if Device[name].target.warp_items:
                return name
        except DeviceError:
            break
    pytest.skip("no OpenCL device here has subgroups whose size a kernel may ask for, and shuffles")


@pytest.fixture
def fresh() -> Iterator[None]:
    """Nothing that was compiled before is used, or kept for later."""
    compiler().forget()
    yield
    compiler().forget()


# -- the text -------------------------------------------------------------------------------------


def printed(linear: UOp) -> str:
    return emit(linear, "k", dialect=WITH_SUBGROUPS).text


def test_what_warps_exchange_is_in_registers_and_nobody_waits() -> None:
    linear = kernel("sum", 8, 64, "4x16")
    text, without = printed(linear), emit(linear, "k", dialect=OPENCL).text
    assert [text.count(f", {bits}u)") for bits in (8, 4, 2, 1)] == [1, 1, 1, 1]
    # What 16 items have is read by their row's, each from item 0 of it: not in bits that are the same for all.
    assert text.count("sub_group_shuffle(") == text.count("% 32u)")
    assert text.count("barrier(") < without.count("barrier(")
    assert text.count("local ") < without.count("local ")


def test_kernel_asks_for_subgroups_of_a_warp_and_numbers_its_items_by_them() -> None:
    text = printed(kernel("softmax", 8, 64, "4x16"))
    assert "__attribute__((intel_reqd_sub_group_size(32)))\nkernel void k(" in text
    assert "#pragma OPENCL EXTENSION cl_khr_subgroup_shuffle : enable\n" in text
    assert "  int item = (int)(get_sub_group_id() * 32u + get_sub_group_local_id());\n" in text
    assert "get_local_id" not in text and "vec_type_hint" not in text


def test_kernel_that_exchanges_nothing_asks_for_nothing() -> None:
    linear = kernel("sum", 3, 37, "1x8")  # no whole warp
    assert printed(linear) == emit(linear, "k", dialect=OPENCL).text
    assert "sub_group" not in printed(linear)


def test_warps_of_a_row_wait_once() -> None:
    text = printed(kernel("sum", 3, 700, "1x64"))
    assert text.count("barrier(") == text.count("local float ") == 1
    assert [text.count(f"sub_group_shuffle_xor(kept{k}, ") for k in range(1, 5)] == [1] * 4


def test_bools_are_exchanged_as_bytes() -> None:
    assert subgroups.across("x", dtypes.bool, 4) == "(sub_group_shuffle_xor((uchar)x, 4u) != 0)"
    assert subgroups.of_item("x", dtypes.int8, "i") == "sub_group_shuffle(x, (uint)i % 32u)"


# -- which devices --------------------------------------------------------------------------------


class Trial(Drivers):
    """Made-up drivers, whose trial gives what `answer` says."""

    def __init__(self, answer: Any, refusal: str = "") -> None:
        self.answer, self.refusal, self.tried = answer, refusal, 0

    def Program(self, context: SimpleNamespace, text: str) -> SimpleNamespace:
        self.tried += 1
        return super().Program(SimpleNamespace(refusal=self.refusal), text)

    def enqueue_copy(self, queue: object, target: Any, source: object, **_: object) -> None:
        if isinstance(source, str):
            target[:] = self.answer


def has_them(extensions: str, answer: Any, refusal: str = "") -> tuple[bool, int]:
    """What is found, and how many programs were tried."""
    drivers = Trial(answer, refusal)
    return subgroups.exchange(drivers, SimpleNamespace(extensions=extensions), None), drivers.tried


def test_device_is_asked_and_tried() -> None:
    both, right = " ".join(sorted(subgroups.REQUIRED)), subgroups._expected()
    assert has_them(both, right) == (True, 1)
    assert has_them("cl_khr_subgroup_shuffle", right) == (False, 0)
    assert has_them(both, right, "no such size") == (False, 1)


@pytest.mark.parametrize("part", range(3))
def test_device_whose_subgroups_are_others_has_none(part: int) -> None:
    """Of another size, or the items of a subgroup do not get what their like have."""
    wrong = np.broadcast_to(subgroups._expected(), (2, 64, 3)).copy()
    wrong[1, 5, part] += 1
    assert has_them(" ".join(sorted(subgroups.REQUIRED)), wrong) == (False, 1)


# -- values ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("group", ["1x64", "2x16", "1x256", "8x4"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "int32", "int64"])
def test_rows_are_what_one_item_gives(dtype: str, group: str, device: str) -> None:
    x, wide = rows(5, 67 if dtype == "int8" else 300), "float64" if "float" in dtype else "int64"
    given, here = [Tensor(x, device=one).cast(dtype).realize() for one in (device, "CPU")]
    for name in ("sum", "max", "min"):
        with schedule(f"group={group}"):
            got = WORK[name](given).realize()
        expected = WORK[name](here).cast(wide).numpy()
        np.testing.assert_array_equal(got.cast(wide).numpy(), expected)


@pytest.mark.parametrize("length", [64, 1000, 37])
@pytest.mark.parametrize("name", ["softmax", "layernorm"])
def test_norms_of_rows_are_those_of_the_processor(name: str, length: int, device: str) -> None:
    x = rows(9, length, "float32")
    with schedule("group=2x32"):
        got = WORK[name](Tensor(x, device=device).realize()).numpy()
    expected = WORK[name](Tensor(x, device="CPU").realize()).numpy()
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


def test_bools_numbers_that_are_none_and_infinities_are_where_numpy_has_them(device: str) -> None:
    x = rows(5, 200, "float32")
    x[1, 100], x[2, -1], x[3, 0], x[4] = np.nan, np.inf, -np.inf, -0.0
    with schedule("group=1x32"):
        given = Tensor(x, device=device).realize()
        for name in ("sum", "max", "min"):
            np.testing.assert_array_equal(WORK[name](given).numpy(), getattr(x, name)(1))
        np.testing.assert_array_equal((given > 8).any(1).numpy(), (x > 8).any(1))


def test_the_solver_shows_all_of_a_maximum_across_subgroups(
    device: str, capfd: pytest.CaptureFixture[str]
) -> None:
    given = Tensor(rows(3, 8, "float32"), device=device).realize()
    with schedule("group=8x4"), fully_proved(capfd):
        np.testing.assert_array_equal(given.max(1).numpy(), rows(3, 8, "float32").max(1))


# -- mistakes -------------------------------------------------------------------------------------

ACROSS = subgroups.across
FAULTS: dict[str, tuple[str, Any]] = {
    "a round is left out": ("across", lambda held, dtype, bits: held),
    "a round takes in another item": (
        "across",
        lambda held, dtype, bits: ACROSS(held, dtype, max(bits, 2)),
    ),
    "all items are the first of their subgroup": ("ITEM", "(int)(get_sub_group_id() * 32u)"),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.usefixtures("fresh")
def test_mistake_in_the_printer_gives_other_values(
    fault: str, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = rows(3, 300, "float32")
    name, wrong = FAULTS[fault]
    monkeypatch.setattr(subgroups, name, wrong)
    with schedule("group=1x32"), Context(PLANS=0):
        got = Tensor(x, device=device).realize().sum(1).numpy()
    assert not (got == x.sum(1)).all()


def test_what_cannot_be_shown_to_be_of_a_warp_stays_memory_of_the_group() -> None:
    """An item reads what the one 32 further on holds."""
    linear = kernel("softmax", 8, 64, "4x16")
    load = next(iter(next(iter(held_by_warps(linear).values()))))
    memory, position = load.src[0].src
    far = position.const_like(32)
    other = UOp(Ops.XOR, position.dtype, (position, far))
    changed = linear.substitute({load.src[0]: load.src[0].with_src((memory, other))})
    at = changed.src.index(position) + 1
    changed = changed.with_src((*changed.src[:at], far, other, *changed.src[at:]))
    assert printed(changed).count("local ") > printed(linear).count("local ")
    assert printed(changed).count("barrier(") > printed(linear).count("barrier(")
