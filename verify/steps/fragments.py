"""What the step to matrix units claims of its fragments: each element is held by one item, and what items hold are the factors of each sum.

Owns: these claims. Does not own: that warps count the iterations of rows and columns, each once (bijections.py, of the step's law).
"""

from __future__ import annotations

from typing import Any

from proofgrad.core.compile.steps.bijection import Bijection
from proofgrad.core.ir.fragments import (
    COLUMNS_EACH,
    GROUPS,
    QUARTERS,
    WARP,
    Square,
    column_element,
    column_holder,
    result_element,
    row_element,
    row_holder,
)
from proofgrad.verify.steps.claims import World

ROW_FRAGMENT = Bijection(
    parameters=("h", "n"),
    before=lambda h, n: (GROUPS * h, QUARTERS * n),
    after=lambda h, n: (WARP, h, n),
    old=lambda item, half, k, h, n: row_element(item, half, k, n),
    new=lambda row, step, h, n: row_holder(row, step, n),
)
COLUMN_FRAGMENT = Bijection(
    parameters=("n",),
    before=lambda n: (QUARTERS * n, GROUPS),
    after=lambda n: (WARP, n),
    old=lambda item, k, n: column_element(item, k, n),
    new=lambda step, column, n: column_holder(step, column, n),
)


ROWS_IN_ITEM = Bijection(
    parameters=("s", "g", "p"),
    before=lambda s, g, p: (s, p * g),
    after=lambda s, g, p: (s * (p * g),),
    old=lambda k, s, g, p: Square(s, p, g).row_element(k),
    new=lambda row, step, s, g, p: (Square(s, p, g).row_holder(row, step),),
)
COLUMNS_IN_ITEM = Bijection(
    parameters=("s", "g", "p"),
    before=lambda s, g, p: (p * g, s),
    after=lambda s, g, p: (p * s * g,),
    old=lambda k, s, g, p: Square(s, p, g).column_element(k),
    new=lambda step, column, s, g, p: (Square(s, p, g).column_holder(step, column),),
)


def factors_of_results(world: World) -> None:
    """At each step, what the item that holds it has of the rows is of the result's row, and so of the columns."""
    halves, steps, warps = world.number("h", 1), world.number("n", 1), world.number("m", 1)
    item = world.number("item", 0, warps * WARP)
    register = world.number("register", 0, halves * COLUMNS_EACH)
    step = world.number("step", 0, steps * QUARTERS)
    row, column = result_element(item, register)
    lane, half, k = row_holder(row, step, steps)
    other = item // WARP * WARP + lane
    _holds(world, "row", row_element(other, half, k, steps), (row, step))
    world.claim("an item of the same warp", other // WARP == item // WARP)
    world.claim("half not below 0", half >= 0)
    world.claim("a half that there is", half < halves)
    lane, k = column_holder(step, column, steps)
    other = item // WARP * WARP + lane
    _holds(world, "column", column_element(other, k, steps), (step, column))
    world.claim("an item of this warp", other // WARP == item // WARP)


def _holds(world: World, name: str, held: tuple[Any, Any], wanted: tuple[Any, Any]) -> None:
    for k, (one, other) in enumerate(zip(held, wanted, strict=True)):
        world.claim(f"the {name}'s element, counter {k + 1}", one == other)
