"""Linear as text: its nodes in the order in which they run.

    linear, indices i64
      run 0, 4
      out: f32[3] = param 0
      a: f32[12] = param 1
      for r0 < 3
        acc0: f32 from 0.0 over r1 < 4
        for r1 < 4 as reduce
          let t0 = update(acc0, acc0 + a[r0 * 4 + r1])
        out[r0] = result(t0)

A line runs the nodes in it that no line above has run, sources first; `for` opens a loop, and the end of its lines closes it.
`run` says where a node runs that is written out again where it is used. Does not own: terms (terms.py).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from proofgrad.core.compile.text.block import Block
from proofgrad.core.compile.text.names import register_name
from proofgrad.core.compile.text.syntax import is_literal, is_plain_loop
from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import AxisRole, UOp, toposort

_OWN_LINE = frozenset({Ops.RANGE, Ops.END, Ops.STORE, Ops.ACCUMULATOR, Ops.UPDATE})


def runs_before(node: UOp) -> tuple[UOp, ...]:
    """The sources that run before a node: a register is set before its loops open."""
    return node.src[:1] if node.op is Ops.ACCUMULATOR else node.src


def newly_run(root: UOp, done: Collection[UOp]) -> list[UOp]:
    """What a line of `root` runs, in order."""
    order: dict[UOp, None] = {}
    stack: list[tuple[UOp, bool]] = [(root, False)]
    while stack:
        node, is_ready = stack.pop()
        if is_ready:
            order[node] = None
        elif node not in order and node not in done:
            stack.append((node, True))
            stack += [(source, False) for source in reversed(runs_before(node))]
    return list(order)


def is_in_running_order(root: UOp) -> bool:
    """Whether a graph is a LINEAR whose nodes run after their sources, in loops that are closed."""
    if root.op is not Ops.LINEAR or root.dtype is not dtypes.void or root.arg is not None:
        return False
    done: set[UOp] = set()
    opened: list[UOp] = []
    before: UOp | None = None
    for node in root.src:
        if node in done or not done.issuperset(runs_before(node)):
            return False
        if node.op is Ops.ACCUMULATOR and register_name(node) is None:
            return False
        if node.op is Ops.RANGE:
            if not is_plain_loop(node):
                return False
            opened.append(node)
        if node.op is Ops.END:
            is_plain = node.dtype is dtypes.void and node.arg is None and len(node.src) == 1
            if not is_plain or before is node.src[0]:
                return False
            if not opened or opened.pop() is not node.src[0]:
                return False
        done.add(node)
        before = node
    return not opened and done.issuperset(toposort(root.src))  # the loops of registers too


class LinearBlock(Block):
    """A LINEAR as lines."""

    def __init__(self, root: UOp, names: Mapping[UOp, str]) -> None:
        super().__init__(root, names)
        self.long.discard(root)
        self.depth = 0
        self.waiting: list[str] = []  # of one line with `run`

    def _form(self) -> str:
        return "linear"

    def lines(self, title: str) -> list[str]:
        """The whole text, headed by `title`; a run of terms shares the line of the statement that uses them."""
        self._head(title)
        self._name_all()
        nodes, done = list(self.root.src), set[UOp]()
        k = 0
        while k < len(nodes):
            last = next(
                (j for j in range(k, len(nodes)) if self._has_own_line(nodes[j])), len(nodes) - 1
            )
            run = nodes[k : last + 1]
            if newly_run(nodes[last], done) != run or any(map(self._has_own_line, run[:-1])):
                last, run = k, nodes[k : k + 1]
            self._statement(nodes[last])
            done.update(run)
            k = last + 1
        self._flush()
        return self.out

    def _has_own_line(self, node: UOp) -> bool:
        return node.op in _OWN_LINE or node in self.long or node in self.memory

    def _statement(self, node: UOp) -> None:
        if node.op is Ops.END:
            self._flush()
            self.depth -= 1
        elif node.op is Ops.RANGE:
            self._flush()
            self._line(self.depth, f"for {self._loop(node, AxisRole.LOOP)}")
            self.declared.add(node)
            self.depth += 1
        elif node in self.memory:
            self._flush()
            self._line(self.depth, f"{self.names.given[node]}: {self.memory[node]}")
        elif node.op is Ops.STORE and len(node.src) == 2 and self._is_plain_store(node):
            self._flush()
            self._store(node, self.depth)
        elif register_name(node) is not None or node in self.long or node.op is Ops.UPDATE:
            self._flush()
            self.long.add(node)
            self._let(node, self.depth)
        elif is_literal(node) and node.op is Ops.CONST or self._is_small(node):
            self.waiting.append(self._term(node))
        else:
            self._flush()
            self.long.add(node)
            self._let(node, self.depth)

    def _is_small(self, node: UOp) -> bool:
        return node.op in (Ops.INDEX, Ops.STORE) or all([not s.src for s in node.src])

    def _flush(self) -> None:
        """The line of what was run by itself."""
        if self.waiting:
            self._line(self.depth, f"run {', '.join(self.waiting)}")
            self.waiting = []
