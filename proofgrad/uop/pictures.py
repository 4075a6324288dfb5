"""Pictures of graphs: Mermaid and Graphviz text, one box a node, one arrow a source.

Owns: these two formats. Does not own: the text that reads back as a graph (core/ir/text.py).
"""

from __future__ import annotations

import html

from proofgrad.core.ir.ops import ALU, MOVEMENT, Ops
from proofgrad.core.ir.uop import UOp

_MEMORY = frozenset({Ops.BUFFER, Ops.COPY, Ops.PARAM, Ops.INDEX, Ops.LOAD, Ops.STORE})
_FILLS = ((ALU, "#cfe8fc"), (MOVEMENT, "#fff3c4"), (_MEMORY, "#dcd6f7"))
_OTHER_FILL = "#eeeeee"


def to_mermaid(root: UOp) -> str:
    """The graph below `root` as a Mermaid flow chart; arrows point from a node to its sources.

    Example:
        print(to_mermaid(Tensor([1, 2, 3]).uop))
    """
    names = _names(root)
    lines = ["flowchart LR"]
    for node, name in names.items():
        parts = [node.op.name, repr(node.dtype), f"arg={node.arg!r}"]
        text = "<br/>".join(
            [html.escape(part, quote=False).replace('"', "&quot;") for part in parts]
        )
        lines.append(f'    {name}["{text}"]')
    lines += [f"    {names[n]} --> {names[source]}" for n in names for source in n.src]
    lines += [f"    style {name} fill:{_fill(node)},stroke:#333" for node, name in names.items()]
    return "\n".join(lines)


def to_dot(root: UOp) -> str:
    """The graph below `root` in the language of Graphviz: `dot -Tsvg` draws it."""
    names = _names(root)
    lines = ["digraph {", "  rankdir=LR; node [shape=box, style=filled]"]
    for node, name in names.items():
        text = f"{node.op.name}\n{node.dtype!r}\narg={node.arg!r}"
        quoted = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        lines.append(f'  {name} [label="{quoted}", fillcolor="{_fill(node)}"]')
    lines += [f"  {names[n]} -> {names[source]}" for n in names for source in n.src]
    return "\n".join([*lines, "}"])


def _names(root: UOp) -> dict[UOp, str]:
    """A, B, ..., Z, A1, B1, ... for the nodes, from the root down."""
    order = root.toposort()[::-1]
    return {
        node: chr(65 + k % 26) + (str(k // 26) if k >= 26 else "") for k, node in enumerate(order)
    }


def _fill(node: UOp) -> str:
    return next((fill for ops, fill in _FILLS if node.op in ops), _OTHER_FILL)
