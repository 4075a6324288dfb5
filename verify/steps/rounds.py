"""What is claimed of rounds in which the items of a group exchange what they have of a sum.

Owns: these claims. Does not own: why counting leaves is enough (theory.py), positions in memory (bijections.py).

An element has digits: which 2m of a round it is of, which half of these, which of the half.
"""

from __future__ import annotations

from typing import Any

from proofgrad.core.compile.steps.all_reduce import taken_from
from proofgrad.verify.steps.claims import Claim, World


def claims() -> dict[str, Claim]:
    """All of them."""
    return {
        "an item takes in its own, and that of the other half": _partner,
        "behind a round it has what differs by a multiple of half as much": _taken_once,
        "at first it has its own": _from_itself,
        "at last it has all of its n": _all,
        "a round stays among n side by side": _of_the_same,
    }


def _element(world: World, name: str, distance: Any) -> tuple[Any, Any, Any, Any]:
    """The number of an element, which follows from its digits, and these."""
    both, half = world.number(f"pair of {name}", 0), world.number(f"half of {name}", 0, 2)
    rest = world.number(f"rest of {name}", 0, distance)
    inside = rest + distance if half == 1 else rest
    element = both * (distance + distance) + inside
    world.claim("its pair", element // (distance + distance) == both)
    world.claim("its place there", element % (distance + distance) == inside)
    return element, both, half, rest


def _other(both: Any, half: Any, rest: Any, distance: Any) -> Any:
    """That of the other half."""
    return both * (distance + distance) + (rest if half == 1 else rest + distance)


def _partner(world: World) -> None:
    distance = world.number("m", 1)
    item, both, half, rest = _element(world, "i", distance)
    world.claim("its own", taken_from(item, 0, distance) == item)
    there = _other(both, half, rest, distance)
    world.claim("that of the other half", taken_from(item, 1, distance) == there)


def _taken_once(world: World) -> None:
    distance = world.number("m", 1)
    item, both, half, rest = _element(world, "i", distance)
    _, _, half_of_x, rest_of_x = _element(world, "x", distance)
    there = _other(both, half, rest, distance)
    world.claim("that of the other half", taken_from(item, 1, distance) == there)
    own = world.one_if((half_of_x == half) & (rest_of_x == rest))
    taken = world.one_if((half_of_x == 1 - half) & (rest_of_x == rest))
    world.claim("each once", own + taken == world.one_if(rest_of_x == rest))


def _from_itself(world: World) -> None:
    n = world.number("n", 1)
    item, x = world.number("i", 0, n), world.number("x", 0, n)
    world.claim(
        "no other is as far as n", world.one_if(x % n == item % n) == world.one_if(x == item)
    )


def _all(world: World) -> None:
    item, x = world.number("i", 0), world.number("x", 0)
    world.claim("each differs by a multiple of 1", x % 1 == item % 1)


def _of_the_same(world: World) -> None:
    """Where 2m divides n, what an item takes in is of the n that it is of itself."""
    distance, pairs = world.number("m", 1), world.number("n / 2m", 1)
    item, both, half, rest = _element(world, "i", distance)
    block, pair = world.number("b", 0), world.number("pair of n", 0, pairs)
    world.suppose(both == block * pairs + pair)
    there = _other(both, half, rest, distance)
    world.claim("that of the other half", taken_from(item, 1, distance) == there)
    world.claim("its pair", there // (distance + distance) == both)
    world.claim("its n", there // (distance + distance) // pairs == block)
