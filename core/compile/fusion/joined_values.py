"""Values that many parts are joined in, and that several kernels read: stored once, where they stay near.

Owns: which of them get a buffer. Does not own: what is joined and then placed itself (views.py), the other limits (limits.py).

    a = stack(steps of a loop);   f(a), g(a), h(a)

Each kernel that reads such a value would ask at each element for all of its parts, and is as long as they are many. Stored, each part is written
to its place. Of more elements than stay near it may be sooner to read the parts where they lie.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

from proofgrad.core.compile.fusion.views import MOST_PLACED, as_computed, some_of
from proofgrad.core.compile.machine.target import Target
from proofgrad.core.ir.op_names import PAD
from proofgrad.core.ir.ops import ELEMENTWISE, MOVEMENT
from proofgrad.core.ir.shapes import elements, is_plain
from proofgrad.core.ir.uop import UOp


def joined_for_several(
    nodes: Sequence[UOp],
    consumers: Mapping[UOp, list[UOp]],
    repetitions: Container[UOp],
    stored: Container[UOp],
    target: Target,
) -> set[UOp]:
    """The values of many parts that are computed by several kernels, as `repetitions` has them, and are best kept."""
    added: set[UOp] = set()
    placed: dict[UOp, frozenset[UOp]] = {}
    for node in nodes:
        found = some_of([placed[source] for source in node.src])
        if node.op is PAD:
            found |= {node}
        elif len(found) >= MOST_PLACED and node in repetitions:
            value = as_computed(node)
            is_whole = not any([takes_a_part(user) for user in consumers[node]])
            if is_whole and value.op in ELEMENTWISE and _stays_near(value, target):
                added.add(value)
                found = frozenset()
        placed[node] = frozenset() if node in stored else found
    return added


def _stays_near(node: UOp, target: Target) -> bool:
    return is_plain(node.shape) and elements(node.shape) * node.dtype.itemsize <= target.near_bytes


def takes_a_part(user: UOp) -> bool:
    """Whether a user takes a part, which a kernel computes alone."""
    return elements(user.shape) < elements(user.src[0].shape) and user.op in MOVEMENT
