"""Terms of a kernel as one line of text, for counterexamples.

Owns: the notation. Does not own: text that loads again (core/ir/text.py).
"""

from __future__ import annotations

from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp, toposort
from proofgrad.verify.kernels.terms import loop_name

LONGEST = 300

_SIGNS = {
    Ops.ADD: "+",
    Ops.MUL: "*",
    Ops.FLOORDIV: "//",
    Ops.MOD: "%",
    Ops.FDIV: "/",
    Ops.AND: "&",
    Ops.OR: "|",
    Ops.XOR: "^",
    Ops.SHL: "<<",
    Ops.SHR: ">>",
    Ops.CMPLT: "<",
    Ops.CMPEQ: "==",
}


def show_term(node: UOp) -> str:
    """`node` with operators between operands; long terms are cut."""
    done: dict[UOp, str] = {}
    for n in toposort((node,)):
        done[n] = _cut(_show(n, [done[s] for s in n.src]))
    return done[node].removeprefix("(").removesuffix(")") if node.op in _SIGNS else done[node]


def _show(node: UOp, src: list[str]) -> str:
    match node.op:
        case Ops.CONST:
            return str(node.arg)
        case Ops.RANGE:
            return loop_name(node)
        case Ops.PARAM:
            return f"parameter{node.arg[0]}"
        case Ops.INDEX:
            return f"{src[0]}[{src[1]}]" + (f" where {src[2]}" if len(src) > 2 else "")
        case Ops.LOAD:
            return f"load({src[0]})"
        case Ops.NOT:
            return f"!{src[0]}"
        case Ops.NEG:
            return f"-{src[0]}"
        case Ops.CAST:
            return f"{node.dtype.name}({src[0]})"
        case Ops.LOCAL_BUFFER:
            return f"kept over {', '.join(src[1:])} of {src[0]}"
        case Ops.REDUCE:
            return f"{node.arg.name.lower()} over {', '.join(src[1:])} of {src[0]}"
    if node.op in _SIGNS and len(src) == 2:
        return f"({src[0]} {_SIGNS[node.op]} {src[1]})"
    return f"{node.op.name.lower()}({', '.join(src)})"


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 4]} ..."
