"""Faults planted in the text of kernels, a kind after the other: CHECK=2 finds each that shows in a value."""

from __future__ import annotations

import random
from functools import cache

import pytest
from planted.printed_faults import Made, kernels_of, outcome
from planted.printed_programs import PROGRAMS
from planted.printed_text import Change, changes

from proofgrad import Context
from proofgrad.verify.sampled.kernels import ValueChecker

# A program for each kind of fault, where it shows in few elements, or in values of one sort.
KINDS = {
    "alignment": "packed",
    "another register": "gathered lanes",
    "branch": "large map",
    "comparison": "gathered lanes",
    "comparison of NaN": "waves",
    "constant of floats": "map",
    "dropped store": "long product",
    "function": "narrow",
    "lane of a mask": "casts",
    "lanes of a shuffle": "interleaved threes",
    "lost choice": "doubles",
    "number": "long sum",
    "operands exchanged": "attention",
    "operation": "large map",
    "start of a loop": "place of the largest",
}
LIVE, MOST = 3, 12  # faults that show, and all that are planted for them


@cache
def made(name: str) -> list[Made]:
    with Context(NUM_THREADS=2):
        return kernels_of(name)


def drawn(name: str, kind: str) -> list[tuple[Made, int, Change]]:
    """Faults of a kind in the kernels of a program, in a random order."""
    found = [
        (one, which, change)
        for one in made(name)
        for which, kernel in enumerate(one.kernels)
        for change in changes(kernel.source.text)
        if change.kind == kind
    ]
    return random.Random(kind).sample(found, min(MOST, len(found)))


@pytest.mark.parametrize("kind", KINDS)
def test_fault_in_the_text_of_a_kernel_is_found(kind: str) -> None:
    live = 0
    for fault in drawn(KINDS[kind], kind):
        found = outcome(*fault)
        assert not found.is_missed, found.change
        live += found.is_live
        if live == LIVE:
            break
    if not live:
        pytest.skip("the text of this processor has no such fault that shows")


@pytest.mark.parametrize("name", PROGRAMS)
def test_kernel_without_a_fault_passes(name: str) -> None:
    check = ValueChecker()
    with Context(CHECK=2):
        for one in made(name):
            check.kernels(one.body, one.kernels)
    assert check.total.kernels == len(made(name))
    assert check.total.runs and not check.total.not_checked
