"""What steps claim of sums weighted by powers of a distance from a maximum: laws of the reals, in which a score may be -inf.

Owns: these claims. Does not own: that each iteration is taken in once (folds.py), why that is enough (theory.py).

A power is any function with e(a) * e(b) = e(a + b), as exp2(c * a) is, and 0 of -inf. A score is a real number or -inf; each
is a case. The least finite number is one that no score is below.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from proofgrad.core.compile.steps.carry_maximum import scaled
from proofgrad.core.compile.steps.rescale_blocks import of_block, of_row
from proofgrad.verify.steps.claims import World


@dataclass(frozen=True, slots=True)
class _Score:
    """A real number, or -inf: None."""

    number: Any

    def maximum(self, other: _Score) -> _Score:
        """The greater of both."""
        if self.number is None:
            return other
        return self if other.number is None else _Score(self.number.maximum(other.number))


def _least(world: World) -> _Score:
    return _Score(world.real("least"))


def _score(world: World, name: str, least: _Score, above: _Score | None = None) -> _Score:
    """A score that is not below another one, which may be the greater for it."""
    if above is None or above.number is None:
        if world.number(f"{name} is -inf", 0, 2) == 1:
            return _Score(None)
    number = world.real(name)
    world.suppose(least.number <= number)
    if above is not None and above.number is not None:
        world.suppose(above.number <= number)
    return _Score(number)


def _powers(world: World) -> Callable[[_Score, _Score], Any]:
    """e(x, m): the power of the distance of a score from a number."""

    def e(score: _Score, reference: _Score) -> Any:
        assert reference.number is not None, "the distance from -inf"
        if score.number is None:
            return world.real("0") * 0
        return world.power(score.number - reference.number)

    return e


def weight_by_blocks(world: World) -> None:
    """The weight of an element beside the maximum of its block, times that of the block, is its weight beside that of the row."""
    e, least = _powers(world), _least(world)
    x = _score(world, "x", least)
    block = _score(world, "b", least, x)
    row = _score(world, "m", least, block)
    both = of_block(e, x, block, least) * of_row(e, block, row, least)
    world.claim("the same weight", both == of_row(e, x, row, least))


def weight_of_nothing(world: World) -> None:
    """Where all scores are -inf, all weights are 0: of an element, a block, and what was added so far."""
    e, least, low = _powers(world), _least(world), _Score(None)
    world.claim("an element", of_block(e, low, low, least) == 0)
    world.claim("a block", of_row(e, low, low, least) == 0)
    world.claim("what was added", scaled(e, world.real("r"), low, low, least) == 0)


def block_of_nothing(world: World) -> None:
    """A block of which all scores are -inf leaves the maximum as it is, and adds nothing."""
    e, least, hidden = _powers(world), _least(world), _Score(None)
    row = _score(world, "m", least)
    world.claim("the maximum", row.maximum(hidden).number is row.number)
    world.claim("its part", of_row(e, hidden, row, least) * world.real("p") == 0)


def factor_of_sum(world: World) -> None:
    """A factor, or a divisor, of all terms of a sum is one of the sum: c * sum[t](f) = sum[t](c * f)."""
    factor, total, more = world.real("c"), world.real("sum"), world.real("f")
    world.claim("from nothing", factor * 0 == 0)
    world.claim("one more", factor * (total + more) == factor * total + factor * more)
    weight, value = world.real("e"), world.real("v")
    world.claim("of products", weight * factor * value == weight * value * factor)


def carried_sum(world: World) -> None:
    """What was added so far beside one maximum, scaled, is what would have been added beside the next one."""
    e, least = _powers(world), _least(world)
    block = _score(world, "b", least)
    before = _score(world, "n", least, block)
    now = _score(world, "m", least, before)
    total, part = world.real("r"), world.real("p")
    leaf = of_row(e, block, before, least)
    world.claim("from nothing", scaled(e, total * 0, before, now, least) == 0)
    world.claim("a weight", scaled(e, leaf, before, now, least) == of_row(e, block, now, least))
    after = scaled(e, total + leaf * part, before, now, least)
    of_both = scaled(e, total, before, now, least) + scaled(e, leaf, before, now, least) * part
    world.claim("one more", after == of_both)


def carried_from_start(world: World) -> None:
    """Before the first block the maximum is -inf, and nothing was added."""
    e, least = _powers(world), _least(world)
    block, part = _score(world, "b", least), world.real("p")
    start, now = _Score(None), _Score(None).maximum(block)
    total = scaled(e, part * 0, start, now, least) + of_row(e, block, now, least) * part
    world.claim("the first block alone", total == of_row(e, block, block, least) * part)
