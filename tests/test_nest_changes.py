"""What DEBUG=4 and DEBUG=5 print of stages: core/compile/passes/changes.py."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from proofgrad import Context, Tensor
from proofgrad.core.compile.passes.changes import MOST_LINES, Changes
from proofgrad.core.compile.text.reader import read_nest
from proofgrad.rules.pipeline import KERNEL_STAGES


def printed(
    capsys: pytest.CaptureFixture[str], level: int, make: Callable[[], Tensor], **more: int
) -> str:
    tensor = make()
    capsys.readouterr()
    with Context(DEBUG=level, **more):
        tensor.realize()
    return capsys.readouterr().err


def stage_lines(text: str) -> list[str]:
    """The lines of the graph and of kernels, without their source and the lines about their runs."""
    starts = r"---|  |rules that fired"
    of_stages = text.partition("\n--- graph:")[2].partition("\ndefine ")[0]
    return [line for line in f"--- graph:{of_stages}".splitlines() if re.match(starts, line)]


def relu_of_a_product() -> Tensor:
    a, b = (
        Tensor.full((4, 6), 2.0).contiguous().realize(),
        Tensor.full((6, 8), 3.0).contiguous().realize(),
    )
    return (a @ b).relu()


def test_debug_5_prints_a_product_in_200_lines(capsys: pytest.CaptureFixture[str]) -> None:
    lines = stage_lines(printed(capsys, 5, lambda: relu_of_a_product() + 1.25))
    assert 40 < len(lines) < 200, len(lines)
    assert max([len(line) for line in lines if not line.startswith("rules")]) < 200


def test_a_stage_that_changed_nothing_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    lines = stage_lines(printed(capsys, 5, lambda: relu_of_a_product() + 2.25))
    same = [k for k, line in enumerate(lines) if line.endswith(": nothing changed")]
    assert len(same) > 5
    assert all([lines[k + 1].startswith("---") for k in same if k + 1 < len(lines)])


def test_debug_4_prints_graphs_that_can_be_read(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, 4, lambda: relu_of_a_product() + 3.25)
    parts = re.findall(r"^--- kernel: .+? -> \w+\n((?:\w.*\n(?:  .*\n)+\n?)+)", text, re.MULTILINE)
    assert len(parts) > 10
    for part in parts:
        read_nest(part)


BEFORE = """\
kernel
  out: f32[8] = param 0
  a: f32[8] = param 1
  for r0 < 8
    let t0 = (a[r0] + 1.0) * a[r0]
    let t1 = (a[r0] + 2.0) * a[r0]
    let t2 = (a[r0] + 3.0) * a[r0]
    let t3 = (a[r0] + 4.0) * a[r0]
    out[r0] = t0 * t0 + t1 * t1 + t2 * t2 + t3 * t3
"""


def test_terms_that_stay_keep_their_names_and_others_take_the_position_of_what_was() -> None:
    changes, stage = Changes("kernel"), KERNEL_STAGES[1]
    first = changes.after(stage, read_nest(BEFORE))
    assert first == "--- kernel: simplify index terms -> Kernel\n" + "\n".join(
        [f"  {line}" for line in BEFORE.splitlines()]
    )
    after = read_nest(BEFORE.replace("2.0", "9.0"))
    assert changes.after(stage, after).splitlines()[1:] == [
        "      for r0 < 8",
        "  -     let t1 = (a[r0] + 2.0) * a[r0]",
        "  +     let t1 = (a[r0] + 9.0) * a[r0]",
    ]
    assert changes.after(stage, after) == "--- kernel: simplify index terms: nothing changed"


def test_a_long_change_is_cut_and_counted() -> None:
    changes, stage = Changes("kernel"), KERNEL_STAGES[1]
    stores = "".join([f"    out[r0 + {k}] = {k}.5\n" for k in range(200)])
    text = changes.after(stage, read_nest(BEFORE.partition("    let")[0] + stores))
    assert len(text.splitlines()) == MOST_LINES + 2
    assert text.endswith(f"... and {203 - MOST_LINES} lines more (DEBUG=4 prints all of them)")


def test_kernels_that_one_becomes_are_each_compared_with_what_they_were() -> None:
    changes, stage = Changes("kernel"), KERNEL_STAGES[1]
    one = read_nest(BEFORE)
    two = read_nest(BEFORE.replace("4.0", "5.0"))
    changes.after(stage, one)
    assert "kernel 2 of 2" in changes.after(stage, type(one).sink(one, two))
    assert changes.after(stage, one).endswith("nothing changed")
    linear = read_nest("linear\n  out: f32[8] = param 0\n  out[0] = 1.0\n")
    changes.after(KERNEL_STAGES[-1], linear)
    assert changes.after(stage, two).endswith("nothing changed")
