"""Faults planted in kernels of work items: which check finds each, as docs/check-kernels.md says."""

from __future__ import annotations

from pathlib import Path

import pytest
from planted.gpu_faults import ORDER, PRINTED, emulated, found_by, plant_in_order

from proofgrad.backends.ptx.dialect import PTXDialect

PAGE = Path(__file__).resolve().parents[1] / "docs" / "check-kernels.md"
FAULT, VALUES = "CallFailed", "other values"  # the emulated GPU is lost; the results are wrong
REFUSED = "CompileError"  # by the printer
BOTH = ["PROVE=1", "CHECK=1"]

FOUND: dict[str, list[str]] = {
    "an item loads its neighbour's element": [*BOTH, f"the emulator: {FAULT}"],
    "two items store to one position": [*BOTH, f"the emulator: {VALUES}"],
    "one item more than results": [*BOTH, f"the emulator: {FAULT}"],
    "one group more than results": [*BOTH, f"the emulator: {FAULT}"],
    "the items of a group leave out an element": [*BOTH, f"the emulator: {VALUES}"],
    "a barrier inside of the loop before it": BOTH,
    "a barrier inside of the last of several loops": BOTH,
    "items add the sum of another item than their partner": [*BOTH, f"the emulator: {VALUES}"],
    "the parts of a sum overlap": [*BOTH, f"the emulator: {VALUES}"],
    "local memory of one element less": BOTH,  # it ends with a whole 16 bytes
    "all items store to one position of local memory": [*BOTH, f"the emulator: {VALUES}"],
    "a barrier is not printed": [f"the emulator: {VALUES}"],
    "the number of an item in its block is one too large": [f"the emulator: {FAULT}"],
    "the number of a block is always 0": [f"the emulator: {VALUES}"],
    "the number of an item is that in its block": [f"the emulator: {VALUES}"],
    "shared memory is half as large": [f"the emulator: {FAULT}"],
    "the rows of an item are exchanged in a product of matrices": [
        *BOTH,
        f"the emulator: {VALUES}",
    ],
    "an item holds its neighbour's column in a product of matrices": [
        *BOTH,
        f"the emulator: {VALUES}",
    ],
    "an item holds its neighbour's column where it is read across the steps": [
        *BOTH,
        f"the emulator: {VALUES}",
    ],
    "a product of matrices takes a row for its column": [*BOTH, f"the emulator: {VALUES}"],
    "a product of matrices takes rows that are not rounded": [f"the emulator: {REFUSED}"],
    "a tile that is turned is read an element further": [*BOTH, f"the emulator: {VALUES}"],
    "blocks of a sum that are copied ahead lie over each other": [*BOTH, f"the emulator: {VALUES}"],
    "registers of a fragment are exchanged": [f"the emulator: {VALUES}"],
    "registers of a rounded fragment are exchanged": [f"the emulator: {VALUES}"],
    "a fragment is not rounded": [f"the emulator: {VALUES}"],
    "rows that items give lie further behind": [f"the emulator: {FAULT}"],
    "rows along the sum that items give lie further behind": [f"the emulator: {FAULT}"],
    "rows along the sum are read as if they lay across it": [f"the emulator: {VALUES}"],
    "copies ahead are not waited for": [f"the emulator: {VALUES}"],
    "words are exchanged with another item than the partner": [f"the emulator: {VALUES}"],
}


@pytest.mark.parametrize(
    "program", ["map", "rows", "product", "columns", "rounded", "turned", "ahead"]
)
def test_program_without_a_fault_is_right_for_all_checks(
    program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with emulated(monkeypatch):
        assert found_by(program) == []


@pytest.mark.parametrize("fault", ORDER)
def test_fault_in_the_order_of_a_kernel_is_found(
    fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, change = ORDER[fault]
    plant_in_order(monkeypatch, change)
    with emulated(monkeypatch):
        assert found_by(program) == FOUND[fault]


@pytest.mark.parametrize("fault", PRINTED)
def test_fault_in_the_printer_is_found_by_running(
    fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, method, wrong = PRINTED[fault]
    monkeypatch.setattr(PTXDialect, method, wrong)
    with emulated(monkeypatch):
        assert found_by(program) == FOUND[fault]


def test_page_has_a_row_for_each_fault() -> None:
    text = PAGE.read_text()
    for fault, found in FOUND.items():
        run = [one for one in found if one.startswith("the emulator")]
        words = {FAULT: "lost", VALUES: "other values", REFUSED: "refused"}
        told = words[run[0].rpartition(": ")[2]] if run else "no"
        row = [fault, *["yes" if name in found else "no" for name in BOTH], told]
        assert f"| {' | '.join(row)} |" in text
