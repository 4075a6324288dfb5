"""What is claimed of memory that is filled for the next iteration while the present one reads it.

Owns: these claims. Does not own: positions in memory (bijections.py), waiting where one part is filled and read (folds.py).
"""

from __future__ import annotations

from typing import Any

from proofgrad.core.compile.steps.fill_ahead import (
    PARTS,
    iteration_kept,
    part_read,
    position_in_part,
)
from proofgrad.verify.steps.claims import World


def what_is_read(world: World) -> None:
    """An iteration reads its own values, and finds them: the one before has filled that part with them, but for the first."""
    count = world.number("n", 2)
    iteration = world.number("s", 0, count)
    part = part_read(iteration)
    world.claim("its own values", iteration_kept(iteration, part, count) == iteration)
    if iteration > 0:
        before = iteration_kept(iteration - 1, part, count)
        world.claim("they were filled before", before == iteration)


def what_is_filled(world: World) -> None:
    """Values that are filled are those of an iteration, and go to a part that is not read until then."""
    count = world.number("n", 2)
    iteration, part = world.number("s", 0, count), world.number("p", 0, PARTS)
    kept = iteration_kept(iteration, part, count)
    world.claim("from the first", 0 <= kept)
    world.claim("to the last", kept < count)
    if part != part_read(iteration):
        world.claim("the next iteration reads it", part == part_read(iteration + 1))


def apart(world: World) -> None:
    """Elements of parts lie as those of one memory, parts around: none is in two places, or beyond the end."""
    size = world.number("size", 1)
    part, position = world.number("p", 0, PARTS), world.number("a", 0, size)
    there = position_in_part(part, position, size)
    world.claim("the part", there // size == part)
    world.claim("the element", there % size == position)
    world.claim("inside of the memory", there < PARTS * size)


def between_waits(world: World) -> None:
    """An item fills no part that others read, and reads what all have filled.

    In each iteration an item waits for all, fills the part of the next one, and reads its own; in the first one it fills
    its own before it waits. Two items are at work at once only where they have passed as many waits.
    """
    filling, reading = world.number("d", 0), world.number("c", 0)
    at_fill, at_read = _waits_passed(filling), _waits_passed(reading)
    if at_fill == at_read:
        world.claim("another part", part_read(filling + 1) != part_read(reading))
    world.claim(
        "what is read was filled before", _waits_passed(reading) < _waits_passed(reading + 1)
    )
    world.claim("the first values, too", 0 < _waits_passed(0))
    if filling > reading + 1:  # the next fill of the part that was read
        world.claim("all have read", at_read < at_fill)


def _waits_passed(iteration: Any) -> Any:
    return iteration + 1
