"""The node type for direct use: `from proofgrad.uop import UOp, Ops`.

Owns: these names. Does not own: nodes themselves (core/ir), patterns with functions (ops.py).
"""

from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp
from proofgrad.uop.pictures import to_dot, to_mermaid

__all__ = ["Ops", "UOp", "to_dot", "to_mermaid"]
