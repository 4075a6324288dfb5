"""What is claimed of memory that is filled for later iterations while the present one reads it.

Owns: these claims, for each number of parts. Does not own: positions in memory (bijections.py), waiting where one part is filled and read (folds.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from proofgrad.core.compile.steps.fill_ahead import (
    MOST_PARTS,
    iteration_kept,
    part_read,
    position_in_part,
)
from proofgrad.verify.steps.claims import Claim, World


def claims() -> dict[str, Claim]:
    """All of them."""
    each: dict[str, Callable[[World, int], None]] = {
        "an iteration reads its own values": _what_is_read,
        "a part is filled with what is read next": _what_is_filled,
        "parts are apart": _apart,
        "nobody fills what others read": _between_waits,
    }
    return {
        f"{what}, of {parts} parts": _of_parts(claim, parts)
        for parts in range(2, MOST_PARTS + 1)
        for what, claim in each.items()
    }


def _of_parts(claim: Callable[[World, int], None], parts: int) -> Claim:
    return lambda world: claim(world, parts)


def _what_is_read(world: World, parts: int) -> None:
    """An iteration reads its own values, and finds them: one before has filled that part with them, but for the first."""
    count = world.number("n", 2)
    iteration = world.number("s", 0, count)
    part = part_read(iteration, parts)
    world.claim("its own values", iteration_kept(iteration, part, count, parts) == iteration)
    if iteration > 0:
        before = iteration_kept(iteration - 1, part, count, parts)
        world.claim("they were filled before", before == iteration)


def _what_is_filled(world: World, parts: int) -> None:
    """Values that are filled are those of an iteration, and go to the part that was read; all other parts are left as they are."""
    count = world.number("n", 2)
    iteration, part = world.number("s", 0, count), world.number("p", 0, parts)
    kept = iteration_kept(iteration, part, count, parts)
    world.claim("from the first", 0 <= kept)
    world.claim("to the last", kept < count)
    if iteration > 0:
        if part == part_read(iteration - 1, parts):
            last = _smaller(iteration + (parts - 1), count - 1)
            world.claim("the furthest iteration, or the last", kept == last)
        else:
            left = iteration_kept(iteration - 1, part, count, parts)
            world.claim("as the iteration before has left it", kept == left)


def _smaller(one: Any, other: Any) -> Any:
    return one if one <= other else other


def _apart(world: World, parts: int) -> None:
    """Elements of parts lie as those of one memory, parts around: none is in two places, or beyond the end."""
    size = world.number("size", 1)
    part, position = world.number("p", 0, parts), world.number("a", 0, size)
    there = position_in_part(part, position, size)
    world.claim("the part", there // size == part)
    world.claim("the element", there % size == position)
    world.claim("inside of the memory", there < parts * size)


def _between_waits(world: World, parts: int) -> None:
    """An item fills no part that others read, and reads what all have filled.

    In each iteration an item waits for all, fills the part of the furthest iteration ahead, and reads its own; in the first one it
    fills those of all iterations between before it waits. Two items are at work at once only where they have passed as many waits. What
    an item fills may be on its way when it waits, but for what is as many fills behind as it asks for.
    """
    filling, reading = world.number("d", 0), world.number("c", 0)
    at_fill, at_read = _waits_passed(filling), _waits_passed(reading)
    if at_fill == at_read:
        filled = part_read(filling + (parts - 1), parts)
        world.claim("another part", filled != part_read(reading, parts))
    begun = reading + (parts - 1)  # of iterations, before the wait of this one
    world.claim("what is read has arrived", reading < begun - _on_their_way(parts))
    if filling > reading:  # a later fill of the part that was read
        world.claim("all have read", at_read < at_fill)


def _waits_passed(iteration: Any) -> Any:
    return iteration + 1


def _on_their_way(parts: int) -> int:
    """Fills that a wait need not wait for (core/compile/lowering/waits.py)."""
    return parts - 2
