"""Small results of replays, used again once nobody holds them.

Owns: how many and how large ones a replay keeps, the question whether somebody holds one. Does not
own: replays (replay.py), memory (realize.py).

Making the nodes of a result and giving them up takes longer than a small kernel. A loop that takes
the next result before it lets go of the last one needs two.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.runtime import realize as machine
from proofgrad.core.tensor.runtime.device import HOST

SPARES = 2
SPARE_BYTES = 1 << 23  # of all results of a replay


class Spare:
    """The value of a result: a BUFFER, through RESHAPE or not, and its memory."""

    __slots__ = ("_unheld", "buffer", "handle", "node")

    def __init__(self, node: UOp, handle: Any) -> None:
        self.node, self.handle = node, handle
        self.buffer = node if node.op is Ops.BUFFER else node.src[0]
        self._unheld = _counts_of_nobody(node is self.buffer)

    def is_free(self) -> bool:
        """Whether no Tensor, graph, array or replay holds it, and so nobody can read it again."""
        return self._counts() == self._unheld

    def _counts(self) -> tuple[int, int, int]:
        count = sys.getrefcount
        return count(self.node), count(self.buffer), count(self.handle)


@functools.cache
def _counts_of_nobody(is_flat: bool) -> tuple[int, int, int]:
    """The counts of references where there is no other holder."""
    spare = Spare.__new__(Spare)
    spare.handle = object()
    spare.buffer = machine.new_buffer(dtypes.uint8, 2, HOST, spare.handle)
    spare.node = (
        spare.buffer if is_flat else UOp(Ops.RESHAPE, dtypes.uint8, (spare.buffer,), (1, 2))
    )
    return spare._counts()
