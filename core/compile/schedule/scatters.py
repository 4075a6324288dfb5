"""Whether values are combined one by one at their positions, where each position would look at all of them.

Owns: the choice, a heuristic. Does not own: which reductions these are, the loops (steps/scatter.py, tactics/scatter.py).
"""

from __future__ import annotations

from proofgrad.core.compile.machine.target import Target
from proofgrad.core.compile.nests.terms_by_position import WORTH_STEPS

# Of the steps of the one loop nest so many times fewer must be left: comparing runs in vectors, of at most so many elements on every
# machine, a store to a computed position does not.
WORTH_GAIN = 16
# On machines with work items the loop in order runs in one item for each of the other results, and waits for
# memory at each step: so many results have to be worth it.
WORTH_RESULTS_OF_ITEMS = 1 << 23


def pays_scatter(results: int, values: int, others: int, target: Target) -> bool:
    """Whether filling so many results and combining so many values, each `others` times, is much less than letting each result look at every
    value."""
    before, after = results * values, results + others * values
    if target.work_items and results < WORTH_RESULTS_OF_ITEMS:
        return False
    return before >= max(WORTH_STEPS, WORTH_GAIN * after)


def pays_overwriting(
    places: int, values: int, others: int, are_rows: bool, is_in_place: bool, target: Target
) -> bool:
    """Whether writing so many values in order, each `others` times, is less than a table of the last value of each place and a choice for each result.

    `are_rows`: what goes to one place lies side by side. `is_in_place`: else all results are stored before.
    """
    results = places * others
    if target.work_items and results < WORTH_RESULTS_OF_ITEMS:
        return False
    table = min(places * values, places + WORTH_GAIN * values)
    each = WORTH_GAIN + others - 1 if are_rows else WORTH_GAIN * others
    return table + results >= values * each + (0 if is_in_place else results)
