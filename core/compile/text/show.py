"""Graphs as the text of loop nests: short, the same in every process, and read back as the same object.

Owns: printing. Does not own: reading (reader.py), the words (syntax.py), the exact text of any node with
all its parts, which is what `repr` gives (text.py).

    kernel
      out: f32[3] = param 0
      a: f32[12] = param 1
      for r0 < 3
        out[r0] = sum[r1 < 4](a[r0 * 4 + r1])

A loop r5 has the number 5. `for` says which loops a store runs in, outermost first; it follows from the loops that
the store changes with. A term that is used several times, or is long, has a name (`let t0 = ...`), so the text is as
long as the graph. A literal has the type of what it is combined with; where that says none, `idx`, `f32` or `bool`; else
it is written, as in `4:i32`. What has no sign of its own is written as `operation:type{arg}(sources)`.
"""

from __future__ import annotations

from collections.abc import Mapping

from proofgrad.core.compile.text.block import Block
from proofgrad.core.compile.text.linear import LinearBlock, is_in_running_order
from proofgrad.core.compile.text.syntax import is_plain_loop
from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp


def show_nest(root: UOp) -> str:
    """The text of a graph. Raises: ValueError for one that holds what has no text, as a KernelGraph."""
    return NestText(root).text


MOST_OF_A_LINE = 72  # characters of a term in a message


def brief(node: UOp) -> str:
    """A loop, or a term that fits into a message; of a longer one the operation."""
    if is_plain_loop(node):
        return f"r{node.arg[0]}"
    try:
        last = NestText(node).text.splitlines()[-1].removeprefix("  return ")
    except ValueError:
        return node.op.name.lower()
    return last if len(last) <= MOST_OF_A_LINE else f"{last[:MOST_OF_A_LINE]} ..."


class NestText:
    """The text of a graph, and the names that its terms have in it.

    `names`: what terms are called in another text. Those that are here as well are called the same.
    """

    def __init__(self, root: UOp, names: Mapping[UOp, str] | None = None) -> None:
        self.names: dict[UOp, str] = {}
        parts = root.src if is_several(root) else (root,)
        titles = [f" {k + 1} of {len(parts)}" for k in range(len(parts))]
        blocks: list[str] = []
        for part, title in zip(parts, titles if is_several(root) else [""]):
            block = (LinearBlock if is_in_running_order(part) else Block)(part, names or {})
            blocks.append("\n".join(block.lines(title)) + "\n")
            self.names |= block.names.given
        self.text = "\n".join(blocks)


def is_several(root: UOp) -> bool:
    """Whether a graph holds graphs, to be run in order."""
    are = bool(root.src) and all([s.op in (Ops.SINK, Ops.LINEAR) for s in root.src])
    return root.op is Ops.SINK and root.dtype is dtypes.void and root.arg is None and are
