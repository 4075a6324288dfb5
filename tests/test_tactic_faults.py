"""Faults planted in tactics never give a wrong value: those that were once thought of, and a few each day."""

from __future__ import annotations

import os
import random
import time
from itertools import islice

import pytest
from planted.draws import a_few_live
from planted.plant import Fault
from planted.procedure_programs import PROGRAMS
from planted.tactic_faults import FILES, Outcome, outcome, warm

# Tactics that do their worst: a fault, a program that shows it, and what becomes of that.
HOSTILE: dict[str, tuple[Fault, str, str]] = {
    "the fill of a sum in memory is left out": (
        Fault("no fill", "core/compile/tactics/block_reductions.py", "return (fill, add, *rest)", "return (add, *rest)"),
        "blocks of a product", "refused",
    ),
    "the fill of a sum in memory comes last": (
        Fault("late fill", "core/compile/tactics/block_reductions.py", "return (fill, add, *rest)", "return (add, fill, *rest)"),
        "blocks of a product", "refused",
    ),
    "a sum in memory is combined twice": (
        Fault("twice", "core/compile/tactics/block_reductions.py", "return (fill, add, *rest)", "return (fill, add, add, *rest)"),
        "blocks of a product", "refused",
    ),
    "a table is read before it is filled": (
        Fault("late table", "core/compile/tactics/pack_operands.py", "return (*filling, nest) if", "return (nest, *filling) if"),
        "odd tiles", "refused",
    ),
    "a table is not filled": (
        Fault("no table", "core/compile/tactics/pack_operands.py", "        filling.append(fill)\n", "        pass\n"),
        "odd tiles", "refused",
    ),
    "what is kept at its positions comes first": (
        Fault("late scatter", "core/compile/tactics/scatter.py", "return (*parts, *scatter(nest))", "return (*parts, *scatter(nest)[::-1])"),
        "gradient by position", "refused",
    ),
    "one half of a scatter, one of another": (
        Fault("mixed", "core/compile/tactics/scatter.py", "return (*parts, *scatter(nest))", "return (*parts, scatter(nest)[0], scatter(nest)[1])"),
        "gradient by position", "refused",
    ),
    "a loop of a reduction is shared out": (
        Fault("threads", "core/compile/tactics/axes.py", "AxisRole.UPCAST for loop in plain}", "AxisRole.THREAD for loop in plain}"),
        "pooled", "refused",
    ),
    "loops of a tile are lanes": (
        Fault("lanes", "core/compile/tactics/axes.py", "NewLoop(number + 3, AxisRole.UPCAST)", "NewLoop(number + 3, AxisRole.VECTOR)"),
        "product", "refused",
    ),
    "two loops of one number": (
        Fault("numbers", "core/compile/tactics/axes.py", "NewLoop(innermost), NewLoop(innermost + 1)", "NewLoop(innermost), NewLoop(innermost)"),
        "packed", "refused",
    ),
    "rows that are not alike are kept as one": (
        Fault("alike", "core/compile/tactics/local_buffers.py", "(*rows, loop), (*made, row), same)", "(*rows, loop), (*made, row), [(value.src[0], (loop,))])"),
        "softmax", "refused",
    ),
    "any two loops are merged": (
        Fault("merged", "core/compile/tactics/coalesce.py", "if outer is not inner and reads_as_one(kernel, outer, inner):", "if outer is not inner:"),
        "turned", "refused",
    ),
    "a table of the wrong order of digits is one of the right values": (
        Fault("digits", "core/compile/tactics/pack_operands.py", "stage(nest, factor, tuple(digits))", "stage(nest, factor, tuple(digits[::-1]))"),
        "odd tiles", "other",
    ),
}  # fmt: skip
HANDFUL, MOST = 8, 16  # live faults, and all that are planted
SOME = 6  # of the programs


@pytest.fixture(scope="module", autouse=True)
def loaded() -> None:
    warm([*PROGRAMS])


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_tactic_gives_no_wrong_value(name: str) -> None:
    fault, program, kind = HOSTILE[name]
    assert outcome(fault, [program]) == Outcome(fault, program, kind)


def test_faults_that_are_drawn_give_no_wrong_value() -> None:
    """Others each day, or those of PLANTED_SEED."""
    seed = os.environ.get("PLANTED_SEED", time.strftime("%Y%m%d"))
    live = 0
    for found in islice(a_few_live(FILES, SOME, MOST, random.Random(seed), outcome), HANDFUL):
        assert not found.is_wrong, f"PLANTED_SEED={seed}: {found}"
        live += 1
    assert live, f"PLANTED_SEED={seed}: none of {MOST} faults is live"
