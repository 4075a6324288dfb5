"""Members of Ops as names of a module, for code that runs for every node of a graph.

Owns: nothing. Python 3.11 takes ten times as long to find a member of an enum, which it does in
Python, as to find a name of a module.
"""

from __future__ import annotations

from proofgrad.core.ir.ops import Ops

ACCUMULATOR = Ops.ACCUMULATOR
ADD = Ops.ADD
AND = Ops.AND
APPLY = Ops.APPLY
BITCAST = Ops.BITCAST
BROADCAST = Ops.BROADCAST
BUFFER = Ops.BUFFER
CAST = Ops.CAST
CONST = Ops.CONST
CONTIGUOUS = Ops.CONTIGUOUS
DETACH = Ops.DETACH
DEVICE = Ops.DEVICE
END = Ops.END
FDIV = Ops.FDIV
FLOORDIV = Ops.FLOORDIV
IOTA = Ops.IOTA
HREDUCE = Ops.HREDUCE
INDEX = Ops.INDEX
LOCAL_BUFFER = Ops.LOCAL_BUFFER
FILLED = Ops.FILLED
LINEAR = Ops.LINEAR
LOAD = Ops.LOAD
MMA = Ops.MMA
MOD = Ops.MOD
MUL = Ops.MUL
MULACC = Ops.MULACC
NEG = Ops.NEG
PARAM = Ops.PARAM
RANGE = Ops.RANGE
REDUCE = Ops.REDUCE
RESHAPE = Ops.RESHAPE
RESULT = Ops.RESULT
SCRATCH = Ops.SCRATCH
SINK = Ops.SINK
STORE = Ops.STORE
TF32 = Ops.TF32
UNIQUE = Ops.UNIQUE
UPDATE = Ops.UPDATE
VARIABLE = Ops.VARIABLE
WHERE = Ops.WHERE
