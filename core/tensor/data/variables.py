"""What sizes are for the values that variables have now.

Owns: questions that those decide. Does not own: the arithmetic of sizes (core/ir/sizes.py), who is told of the answers
(core/tensor/runtime/recording.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.shapes import sizes
from proofgrad.core.ir.uop import UOp


def has_values(size: Any) -> bool:
    """Do all variables of a size have a value?"""
    if isinstance(size, int):
        return True
    below = size.toposort()
    bound = {node.src[0] for node in below if node.op is Ops.BIND}
    return all(node in bound for node in below if node.op is Ops.VARIABLE)


def are_as_before(choices: Mapping[UOp, bool], values: Mapping[str, int]) -> bool:
    """Is each of these sizes 0 or more, or less, as it was, where variables have other values now?"""
    of = sizes()
    for size, was_there in choices.items():
        own: dict[str, int] = {}
        of.unbound(size, own)
        if (of.value_of_shape(of.bound((size,), {**own, **values}))[0] >= 0) is not was_there:
            return False
    return True
