"""Where all uses of a value meet.

Owns: the tree of these nodes. Does not own: what gets a buffer (kernels.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from proofgrad.core.ir.uop import UOp


def meeting_points(nodes: Sequence[UOp], consumers: Mapping[UOp, Sequence[UOp]]) -> MeetingPoints:
    """For each node the nearest node through which every use of it passes; None: there is none.

    Immediate post-dominators (Cooper, Harvey, Kennedy, A Simple, Fast Dominance Algorithm, 2001). `nodes`: sources first.
    """
    tree = MeetingPoints()
    for node in reversed(nodes):
        common: UOp | None = None
        for k, user in enumerate(consumers[node]):
            common = user if k == 0 else tree.common(common, user)
            if common is None:
                break
        tree.add(node, common)
    return tree


class MeetingPoints:
    """Nodes, each below another one or below none (None).

    Each also knows one far above, so that what two have in common is found in as many steps as the
    logarithm of their depth (Myers, An applicative random-access stack, 1983).
    """

    def __init__(self) -> None:
        self.nearest: dict[UOp, UOp | None] = {}
        self._far: dict[UOp | None, UOp | None] = {None: None}
        self._depth: dict[UOp | None, int] = {None: 0}

    def add(self, node: UOp, nearest: UOp | None) -> None:
        """`node` right below `nearest`, which is there."""
        far, depth = self._far, self._depth
        first = far[nearest]
        is_even = depth[nearest] - depth[first] == depth[first] - depth[far[first]]
        far[node] = far[first] if is_even else nearest
        depth[node] = depth[nearest] + 1
        self.nearest[node] = nearest

    def common(self, a: UOp | None, b: UOp | None) -> UOp | None:
        """The lowest node that is above both, or one of them."""
        above, far, depth = self.nearest, self._far, self._depth
        if depth[a] < depth[b]:
            a, b = b, a
        while a is not None and depth[a] > depth[b]:
            a = far[a] if depth[far[a]] >= depth[b] else above[a]
        while a is not None and b is not None and a is not b:
            a, b = (above[a], above[b]) if far[a] is far[b] else (far[a], far[b])
        return a
