"""What a loop that stands unrolled carries from one step to the next: values that get a buffer, so that no kernel runs all of its steps.

Owns: where steps part, where a sum of what they give is taken in parts, and whether kernels of a few steps each are cheaper. Does not own: the end of a chain behind which nothing else is used,
and the other limits (limits.py).

    for k in range(1000): a, v = a + v * h, v - a.sin() * h        a and v after every few steps

Without it all of the steps are one kernel, whose time to compile grows faster than its length; of 1000 results each is a kernel of all
steps before it; and the gradients compute the loop again for each value that they take of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from proofgrad.core.compile.fusion.work import computed_by
from proofgrad.core.compile.schedule.operation_cycles import (
    MEMORY_CYCLES,
    OPERATION_CYCLES,
    SHORT_CYCLES,
)
from proofgrad.core.ir.op_names import ADD, SINK
from proofgrad.core.ir.ops import ELEMENTWISE, MOVEMENT
from proofgrad.core.ir.shapes import elements
from proofgrad.core.ir.uop import UOp

# Cycles of a vector between two places where steps part, for each value that is carried.
STEPS_CYCLES = 256
# What takes so few cycles may be computed again behind it.
FEW_CYCLES = 8
# Values that are carried: each is a kernel, which computes the steps from the last place on.
MOST_CARRIED = 8
# Nodes behind a value within which its uses are of this step or the next; those of its gradients are further behind.
NEAR = 256
# Cycles of a kernel of which the time to compile weighs as much as the time to run.
LONG_KERNEL_CYCLES = 16384
# Cycles of the terms of a sum that one kernel adds up.
CYCLES_OF_PART = LONG_KERNEL_CYCLES // 8


def carried_by_loops(
    nodes: Sequence[UOp], consumers: Mapping[UOp, list[UOp]], stored: set[UOp]
) -> set[UOp]:
    """Values of which each of a few is used soon behind, where all that is computed between took long.

    `nodes`: sources first, as a walk from the results finds them, in which a step is finished before the next begins.
    """
    found: set[UOp] = set()
    cycles: dict[UOp, float] = {}  # from memory to each value
    begins: dict[UOp, float] = {}  # what all before the first that a value is computed from took
    carried: dict[UOp, None] = {}
    last, taken, border = _last_uses(nodes, consumers), 0.0, 0.0
    left_at: dict[int, list[UOp]] = {}  # what is carried up to a place
    for place, node in enumerate(nodes):
        computed = [source for source in node.src if cycles[source] > FEW_CYCLES]
        begins[node] = min([begins[source] for source in computed], default=taken)
        own = _cycles(node)
        taken += own
        before = max([cycles[source] for source in node.src], default=0.0)
        cycles[node] = 0.0 if node in stored else before + own
        if own and cycles[node] > FEW_CYCLES and last[node] > place:
            carried[node] = None
            left_at.setdefault(last[node], []).append(node)
        for other in left_at.get(place, ()):
            carried.pop(other, None)
        if not 0 < len(carried) <= MOST_CARRIED or last[node] <= place:
            continue
        begin = max(border, min([begins[other] for other in carried]))
        if taken - begin > STEPS_CYCLES * len(carried):
            found.update(carried)
            cycles.update(dict.fromkeys(carried, 0.0))
            carried.clear()
            border = taken
    return found


def parts_of_long_sums(nodes: Sequence[UOp], stored: set[UOp]) -> set[UOp]:
    """Sums of a few of the terms where a kernel adds up what took long, as the gradient of what each step uses is added up."""
    found: set[UOp] = set()
    added: dict[UOp, int] = {}  # so many additions follow each other
    for node in nodes:
        before = max([added[source] for source in node.src], default=0)
        is_sum = node.op is ADD and node not in stored
        added[node] = before + 1 if is_sum else 0
    for root in _roots(nodes, stored):
        inside = computed_by(root, stored)
        if sum(map(_cycles, inside)) > CYCLES_OF_PART:
            found |= _parts_of_sum(max(inside, key=lambda node: added[node]), added, stored)
    return found


def _parts_of_sum(whole: UOp, added: Mapping[UOp, int], stored: set[UOp]) -> set[UOp]:
    sums = [whole]
    while added[sums[-1]] > 1:
        sums.append(max(sums[-1].src, key=lambda source: added[source]))
    found, seen, taken = set[UOp](), set[UOp](), 0.0
    for part in reversed(sums[1:]):
        new = [n for n in part.toposort(lambda n: not (n in stored or n in seen)) if n not in seen]
        seen.update(new)
        taken += sum([_cycles(node) for node in new if node not in stored])
        if taken > CYCLES_OF_PART:
            found.add(part)
            seen, taken = {part}, 0.0
    return found


def least_cycles(nodes: Sequence[UOp], stored: set[UOp], choices: Sequence[set[UOp]]) -> set[UOp]:
    """The choice of values to store beside `stored` whose kernels take the least for an element of their results.

    Where several are stored, most kernels are the same by all choices: those count for none.
    """
    kept = [stored | ends for ends in choices]
    differing = _above_differences(nodes, kept)
    cycles = [_cycles_of_kernels(nodes, ends, differing) for ends in kept]
    return choices[cycles.index(min(cycles))]


def _above_differences(nodes: Sequence[UOp], choices: Sequence[set[UOp]]) -> set[UOp]:
    """What is computed, by one of the choices or more, from values that not all of them store; and these values."""
    common = set.intersection(*choices)
    found = set.union(*choices) - common
    for node in nodes:
        if any([source in found and source not in common for source in node.src]):
            found.add(node)
    return found


def _cycles_of_kernels(nodes: Sequence[UOp], stored: set[UOp], ends: set[UOp]) -> float:
    """What kernels that end with some of these take, where these values are stored; more than in proportion for a long one, for the time to
    compile it."""
    total = 0.0
    for root in [root for root in _roots(nodes, stored) if root in ends]:
        whole = max(1, elements(root.shape))
        inside = computed_by(root, stored)
        cycles = sum([min(1.0, elements(n.shape) / whole) * _cycles(n) for n in inside])
        total += MEMORY_CYCLES + cycles * (1 + cycles / LONG_KERNEL_CYCLES)
    return total


def _roots(nodes: Sequence[UOp], stored: set[UOp]) -> list[UOp]:
    """What kernels end with."""
    roots = [node for node in nodes if node in stored]
    roots += [source for node in nodes if node.op is SINK for source in node.src]
    return list(dict.fromkeys(roots))


def _cycles(node: UOp) -> float:
    return OPERATION_CYCLES.get(node.op, SHORT_CYCLES) if node.op in ELEMENTWISE else 0.0


def _last_uses(nodes: Sequence[UOp], consumers: Mapping[UOp, list[UOp]]) -> dict[UOp, int]:
    """The place of the last near use of each node, by itself or moved; 0: there is none."""
    places = {node: place for place, node in enumerate(nodes)}
    last: dict[UOp, int] = {}
    for place in range(len(nodes) - 1, -1, -1):
        node = nodes[place]
        uses = [last[user] if user.op in MOVEMENT else places[user] for user in consumers[node]]
        last[node] = max([use for use in uses if use <= place + NEAR], default=0)
    return last
