"""PROVE=1: what two stages keep alike is compared once, and as memory from then on; what they keep otherwise is still told apart."""

from __future__ import annotations

import numpy as np
import pytest
from test_parts_for_units import NAME

from proofgrad import Tensor
from proofgrad.core.compile.text.reader import read_nest
from proofgrad.core.tensor.runtime.realize import compiler
from proofgrad.verify.kernels.kept import Alike, kept_alike
from proofgrad.verify.kernels.match import Difference
from proofgrad.verify.kernels.match_stores import StoreMatcher
from proofgrad.verify.kernels.questions import Questions
from proofgrad.verify.kernels.readback import Written, stores_of
from proofgrad.verify.kernels.tables import Memories, without_kept

KEPT = """kernel
  out: f32[12] = param 0
  a: f32[12] = param 1
  for r0 < 3
    let t0 = local[r1 < 4](a[r0 * 4 + r1] * 2.0)
    for r2 < 4
      out[r0 * 4 + r2] = t0[r2] + t0[0]
"""
SPLIT = (
    "local[r1 < 4](a[r0 * 4 + r1] * 2.0)",
    "local[r1 < 2, r3 < 2](a[r0 * 4 + (r1 * 2 + r3)] * 2.0)",
)
OTHER_VALUE = "* 2.0", "* 3.0"
OTHER_ORDER = "a[r0 * 4 + r1]", "a[r0 * 4 + (3 - r1)]"
OTHER_ROW = "out[r0 * 4 + r2]", "out[(2 - r0) * 4 + r2]"
OTHER_PLACE = "t0[0]", "t0[r2]"


def compared(change: tuple[str, str]) -> tuple[int, Difference | None]:
    """How many values both keep, and how what is stored differs."""
    before, after = stores_of(read_nest(KEPT)), stores_of(read_nest(KEPT.replace(*change)))
    matcher = StoreMatcher(Questions())
    alike: Alike = kept_alike(before, after, matcher, strict=True)
    put = put_in_place(before, alike.before), put_in_place(after, alike.after)
    return len(alike.after), matcher.stores(*put, strict=True)


def put_in_place(stores: list[Written], memories: Memories) -> list[Written]:
    return [Written(without_kept(w.store, memories), w.loops) for w in stores]


@pytest.mark.parametrize("change", [("", ""), SPLIT], ids=["same", "split"])
def test_value_that_both_keep_is_memory_of_both(change: tuple[str, str]) -> None:
    assert compared(change) == (1, None)


@pytest.mark.parametrize("change", [OTHER_VALUE, OTHER_ORDER], ids=["value", "order"])
def test_value_that_each_keeps_otherwise_is_put_in_place(change: tuple[str, str]) -> None:
    count, difference = compared(change)
    assert count == 0
    assert difference is not None


def test_value_of_another_row_is_another_element_of_that_memory() -> None:
    """Both keep the same for each row, and store it elsewhere."""
    count, difference = compared(OTHER_ROW)
    assert count == 1
    assert difference is not None
    assert difference.is_counterexample


def test_value_read_at_another_position_is_another_element() -> None:
    count, difference = compared(OTHER_PLACE)
    assert count == 1
    assert difference is not None


def test_rows_of_a_group_take_few_obligations(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Each round of what 32 items take in doubles what an item has: put in place they are thousands of reductions."""
    for name in ("PROVE", "PLANS"):
        monkeypatch.setenv(name, str(int(name == "PROVE")))
    compiler().forget()
    x = np.random.default_rng(0).integers(-99, 99, (3, 130)).astype(np.int32)
    np.testing.assert_array_equal(Tensor(x, device=NAME).max(1).numpy(), x.max(1))
    (line,) = [s for s in capfd.readouterr().err.splitlines() if s.startswith("proved")]
    assert "NOT COVERED" not in line
    assert int(line.split(" obligations")[0].split()[-1].replace(",", "")) < 300, line
