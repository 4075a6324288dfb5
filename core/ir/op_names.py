"""Members of Ops as names of a module, for code that runs for every node of a graph.

Owns: nothing. Python 3.11 takes ten times as long to find a member of an enum, which it does in
Python, as to find a name of a module.
"""

from __future__ import annotations

from proofgrad.core.ir.ops import Ops

ADD = Ops.ADD
AND = Ops.AND
BROADCAST = Ops.BROADCAST
CONST = Ops.CONST
FLOORDIV = Ops.FLOORDIV
KEEP = Ops.KEEP
KEPT = Ops.KEPT
MOD = Ops.MOD
MUL = Ops.MUL
NEG = Ops.NEG
RANGE = Ops.RANGE
REDUCE = Ops.REDUCE
RESULT = Ops.RESULT
STORE = Ops.STORE
VARIABLE = Ops.VARIABLE
WHERE = Ops.WHERE
