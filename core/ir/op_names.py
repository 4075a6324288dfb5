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
CMPLT = Ops.CMPLT
CONST = Ops.CONST
CONTIGUOUS = Ops.CONTIGUOUS
COPY = Ops.COPY
DETACH = Ops.DETACH
DEVICE = Ops.DEVICE
DOT = Ops.DOT
END = Ops.END
EXPAND = Ops.EXPAND
FDIV = Ops.FDIV
FILLED = Ops.FILLED
FLIP = Ops.FLIP
FLOORDIV = Ops.FLOORDIV
FMA = Ops.FMA
HREDUCE = Ops.HREDUCE
INDEX = Ops.INDEX
IOTA = Ops.IOTA
LINEAR = Ops.LINEAR
LOAD = Ops.LOAD
LOCAL_BUFFER = Ops.LOCAL_BUFFER
MMA = Ops.MMA
MOD = Ops.MOD
MUL = Ops.MUL
MULACC = Ops.MULACC
NEG = Ops.NEG
PAD = Ops.PAD
PARAM = Ops.PARAM
PERMUTE = Ops.PERMUTE
RANGE = Ops.RANGE
REDUCE = Ops.REDUCE
REDUCE_AXIS = Ops.REDUCE_AXIS
RESHAPE = Ops.RESHAPE
RESULT = Ops.RESULT
SCRATCH = Ops.SCRATCH
SHL = Ops.SHL
SHRINK = Ops.SHRINK
SINK = Ops.SINK
SKEW = Ops.SKEW
STORE = Ops.STORE
TF32 = Ops.TF32
UNIQUE = Ops.UNIQUE
UPDATE = Ops.UPDATE
VARIABLE = Ops.VARIABLE
WHERE = Ops.WHERE
