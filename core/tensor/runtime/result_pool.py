"""Small results of replays, used again once nobody holds them.

Owns: how many and how large ones a replay keeps. Does not own: replays (replay.py), memory (memory.py), the question
whether somebody holds one (owners.py).

Making the nodes of a result and giving them up takes longer than a small kernel. A loop that takes
the next result before it lets go of the last one needs two.
"""

from __future__ import annotations

from typing import Any

from proofgrad.core.ir.op_names import BUFFER
from proofgrad.core.ir.uop import UOp

SPARES = 2
SPARE_BYTES = 1 << 23  # of all results of a replay


class Spare:
    """The value of a result: a BUFFER, through RESHAPE or not, and its memory."""

    __slots__ = ("buffer", "handle", "made_of", "node")

    def __init__(self, node: UOp, handle: Any, made_of: Any = None) -> None:
        self.node, self.handle = node, handle
        self.made_of = made_of  # what is noted of the value in lost_ways.py
        self.buffer = node if node.op is BUFFER else node.src[0]
