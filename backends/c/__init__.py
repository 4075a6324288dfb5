"""Plain C: kernels as text that any C11 compiler takes, to be read or compiled elsewhere.

emit.py: Linear -> C, with the printer of OpenCL C.  prelude.py: what OpenCL C has built in and C lacks.
There is no runtime: nothing here compiles or runs the text.
"""

from __future__ import annotations

from proofgrad.core.compile.machine.target import Target
from proofgrad.core.ir.dtypes import dtypes

# No work items and no vectors: every axis is a loop.
TARGET = Target("C", index_dtype=dtypes.int32, has_fma=False)
