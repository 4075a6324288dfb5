"""The node type for direct use: `from proofgrad.uop import UOp, Ops`.

Owns: these names. Does not own: nodes themselves (core/ir), patterns with functions (ops.py).
"""

from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp

__all__ = ["Ops", "UOp"]
