"""The lines of the text of one graph: memory, loops, terms that have a name, stores.

Owns: which line stands where. Does not own: terms (terms.py), several graphs (show.py), Linear (linear.py).
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from proofgrad.core.compile.text.names import declaration, register_name
from proofgrad.core.compile.text.syntax import (
    STORES,
    is_literal,
    is_plain_loop,
    loop_order,
    nest_of,
    type_name,
)
from proofgrad.core.compile.text.terms import Terms, everything, held
from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import AxisRole, UOp

_PROGRAM_OPS = frozenset(
    {Ops.ACCUMULATOR, Ops.UPDATE, Ops.RESULT, Ops.BROADCAST, Ops.HREDUCE, Ops.SCRATCH, Ops.FILLED}
)


class Block(Terms):
    """One graph as lines."""

    def __init__(self, root: UOp, names: Mapping[UOp, str]) -> None:
        super().__init__(root, names)
        self.emitted: set[UOp] = set()
        self.memory: dict[UOp, str] = {}  # and variables: what their lines say of them
        self.out: list[str] = []

    def lines(self, title: str) -> list[str]:
        """The lines of the graph, the first of which has a title."""
        self._head(title)
        self._name_all()
        self._declare()
        opened: list[tuple[UOp, bool]] = []
        for root in self.roots:
            opened = self._root(root, opened)
        return self.out

    def _head(self, title: str) -> None:
        indices = "" if self.index is dtypes.index else f", indices {type_name(self.index)}"
        has_device = self.is_sink and self.root.arg is not None
        position = f" on {json.dumps(self.root.arg)}" if has_device else ""
        self.out.append(f"{self._form()}{title}{position}{indices}")

    def _form(self) -> str:
        ops = {node.op for node in self.nodes}
        if not self.is_sink:
            return "term"
        if Ops.STORE not in {s.op for s in self.root.src}:
            return "graph"
        return "kernel" if ops.isdisjoint(_PROGRAM_OPS) else "program"

    def _name_all(self) -> None:
        """Memory, variables, registers and loops have names that say what they are."""
        for loop in sorted(filter(is_plain_loop, self.nodes), key=loop_order):
            self.names.give(loop, f"r{loop.arg[0]}", letters=True)
        for node in self.nodes:
            if (name := register_name(node)) is not None:
                self.names.give(node, name, letters=True)
        found = [(declaration(n), n) for n in self.nodes]
        known = [(one, node) for one, node in found if one is not None]
        for (_, name, text), node in sorted(known, key=lambda x: x[0][0]):
            self.names.give(node, name)
            self.memory[node] = text

    def _declare(self) -> None:
        for node, text in self.memory.items():
            self._line(0, f"{self.names.given[node]}: {text}")
            self.emitted.add(node)

    # -- statements -----------------------------------------------------------------------------

    def _root(self, root: UOp, opened: list[tuple[UOp, bool]]) -> list[tuple[UOp, bool]]:
        """The lines of a root, after those of the terms that it needs; the loops that stand open then."""
        is_store = self._is_plain_store(root)
        own = set(root.src[2:]) if is_store else set()
        path = [(loop, loop in own) for loop in nest_of(self.free[root])] if is_store else []
        shared = 0
        while shared < min(len(path), len(opened)) and path[shared] == opened[shared]:
            shared += 1
        below = everything(root, lambda n: n not in self.emitted)
        at = self._depths(below, [loop for loop, _ in path], shared)
        for depth in range(shared, len(path) + 1):
            for node in at[depth]:
                self._let(node, depth)
            if depth < len(path):
                loop, in_order = path[depth]
                usual = AxisRole.REDUCE if in_order else AxisRole.LOOP
                order = " in order" if in_order else ""
                self._line(depth, f"for {self._loop(loop, usual)}{order}")
                self.declared.add(loop)
        if is_store:
            self._store(root, len(path))
        else:
            self._over(root, 0)
            self._line(0, f"return {self._term(root)}")
        self.emitted.update(below)
        return path

    def _depths(self, nodes: list[UOp], path: list[UOp], shared: int) -> list[list[UOp]]:
        """The nodes that get a line, each in the loops that it changes with; of those `shared` stand open."""
        at: list[list[UOp]] = [[] for _ in range(len(path) + 1)]
        depth: dict[UOp, int] = {}
        for node in nodes:
            if node in self.emitted:
                continue
            least = max([depth.get(s, 0) for s in (*node.src, *held(node.arg))], default=0)
            if self._has_line(node):
                inside = [k + 1 for k, loop in enumerate(path) if loop in self.free[node]]
                is_register = register_name(node) is not None
                least = max([least, shared, len(path) if is_register else 0, *inside])
                at[least].append(node)
            depth[node] = least
        return at

    def _has_line(self, node: UOp) -> bool:
        return node in self.long or register_name(node) is not None

    def _line(self, depth: int, text: str) -> None:
        self.out.append(f"{'  ' * (depth + 1)}{text}")

    def _let(self, node: UOp, depth: int) -> None:
        if register_name(node) is None:
            self._over(node, depth)
            text = self._term(node)
            self.names.give_number(node)
            self._line(depth, f"let {self.names.given[node]} = {text}")
            return
        start, loops = node.src[0], node.src[1:]
        self._over(start, depth)
        kind = type_name(node.dtype)
        over = f" over {self._loops(loops)}" if loops else ""
        value = self._literal(start, node.dtype) if is_literal(start) else self._term(start)
        self._line(depth, f"{self.names.given[node]}: {kind} from {value}{over}")
        self.declared.update(loops)

    def _is_plain_store(self, node: UOp) -> bool:
        if node.op is not Ops.STORE or node in self.long or len(node.src) < 2:
            return False
        loops = list(node.src[2:])
        is_void = node.dtype is dtypes.void and (node.arg is None or type(node.arg) is Ops)
        plain = is_void and node.arg in STORES and self._is_plain_place(node.src[0])
        in_order = [x for x in nest_of(self.free[node]) if x in loops]
        are_own = in_order == loops and all([x.arg[1] is AxisRole.REDUCE for x in loops])
        return plain and are_own and all(map(is_plain_loop, self.free[node]))

    def _store(self, store: UOp, depth: int) -> None:
        position, value = store.src[:2]
        self._over(store, depth)
        written = self._written(store, (position, value))
        text = self._piece(value, around=position.dtype)
        self._line(depth, f"{written[position][0][1:]} {STORES[store.arg]} {text}")

    def _over(self, root: UOp, depth: int) -> None:
        """A line that declares the loops which a term mentions, and no sum of it binds."""
        loose: dict[UOp, frozenset[UOp]] = {}
        for node in self._inside(root):
            if is_plain_loop(node):
                loose[node] = self.free[node]
                continue
            below = () if self._is_named(node) and node is not root else node.src
            binds = self._binds(node)
            sources = below[:1] if binds else below
            found = frozenset(filter(is_plain_loop, held(node.arg)))
            found = found.union(*[loose[s] for s in sources])
            if binds:
                sizes = [self.free[loop.src[0]] for loop in node.src[1:]]
                found = found.difference(node.src[1:]).union(*sizes)
            loose[node] = found
        if missing := loose[root] - self.declared:
            loops = sorted(missing, key=self.positions.__getitem__)
            self._line(depth, f"over {self._loops(loops)}")
            self.declared.update(loops)
