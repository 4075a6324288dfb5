"""What a printer of LLVM IR knows of a kernel, and of what it has written.

Owns: the state, which register holds a node's value. Does not own: what is written of loops (loop_printer.py), of memory
(memory_printer.py), of the rest (emit.py).
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from proofgrad.backends.llvm.behind_masks import behind_masks
from proofgrad.backends.llvm.copies import copies_of
from proofgrad.backends.llvm.dialect import Dialect
from proofgrad.backends.llvm.group_memory import memory_of_group
from proofgrad.backends.llvm.held import held_in_registers
from proofgrad.backends.llvm.interleave import interleaved_stores
from proofgrad.backends.llvm.interleaved_groups import interleaved_groups
from proofgrad.backends.llvm.loops import OpenLoop, carried_accumulators
from proofgrad.backends.llvm.matrix_loads import Together, loads_together, rounded_by_products
from proofgrad.backends.llvm.matrix_rows import with_rows
from proofgrad.backends.llvm.memory import Position, choices_by_data, masks_by_data
from proofgrad.backends.llvm.neighbours import (
    Word,
    alone_in_words,
    within_words,
    words_of_neighbours,
)
from proofgrad.backends.llvm.nontemporal import nontemporal_stores
from proofgrad.backends.llvm.peeling import peeled
from proofgrad.backends.llvm.prefetch import prefetched
from proofgrad.backends.llvm.register_transpose import transposed_stores, unread_vectors
from proofgrad.backends.llvm.rows_together import Rows, loads_of_rows, positions_of_followers
from proofgrad.backends.llvm.skipping import (
    growing_masks,
    masks_of_lanes,
    skipped,
    truths_of_all,
    unswitched,
    whole_choices,
)
from proofgrad.backends.llvm.strided import picks_lanes, step_of
from proofgrad.backends.llvm.text import literal, register_type
from proofgrad.backends.llvm.tiles import tiles_of
from proofgrad.backends.llvm.transposed_loads import TransposedLoad, transposed_loads
from proofgrad.backends.llvm.two_ways import two_ways
from proofgrad.backends.llvm.writer import Writer
from proofgrad.backends.llvm.written_out import Turn, filled_ahead, turns_written_out
from proofgrad.core.compile.lowering.held_by_warps import exchanged_memory, memory_of
from proofgrad.core.compile.lowering.program_facts import group_size, lanes_apart
from proofgrad.core.compile.lowering.waits import waits
from proofgrad.core.compile.machine.target import CompileError
from proofgrad.core.compile.schedule.cost_model import masks_are_vectors
from proofgrad.core.ir.op_names import ACCUMULATOR, BROADCAST, CONST, FILLED, LOAD
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp, is_of_group, toposort


class PrinterState(ABC):
    """Of one kernel."""

    def __init__(self, linear: UOp, name: str, dialect: Dialect) -> None:
        self.name, self.dialect = name, dialect
        self.writer = Writer(dialect)
        self.registers: dict[UOp, str] = {}
        self.positions: dict[UOp, Position] = {}
        self.products: dict[UOp, str] = {}  # in which block each stands
        self.current: dict[UOp, str] = {}  # the register that holds each accumulator now
        self.loops: list[OpenLoop] = []
        kept = [n for n in linear.src if n.op is FILLED and is_of_group(n.src[1:])]
        self.held = held_in_registers(linear, dialect.row_part_bytes)
        self.written_out = frozenset().union(*[x.loops for x in self.held.values()])
        self.held.update({n: self.held[m] for n in kept if (m := memory_of(n)) in self.held})
        self.by_warps = exchanged_memory(linear, dialect.memory_bytes) if dialect.exchanges else {}
        self.of_warp = {*self.by_warps, *[n for n in kept if memory_of(n) in self.by_warps]}
        self.read_of_warp = {
            load: items for x in self.by_warps.values() for load, items in x.items()
        }
        kept = [n for n in kept if n not in self.held and n not in self.of_warp]
        filled = set(map(memory_of, kept))
        parts = [n for n in linear.src if n in filled]
        self.kept_by_group = memory_of_group(name, parts, dialect)
        self.of_group = {*parts, *kept}
        if dialect.keeps_in_registers:
            theirs = {*self.of_group, *self.of_warp, *self.held}
            own = [n for n in linear.src if n.op is Ops.FILLED and n not in theirs]
            self.written_out |= {loop for n in own for loop in n.src[1:]}
        self.group = group_size(linear)
        self.together = dict[UOp, Together]()
        if dialect.loads_matrices:
            self.together = loads_together(linear, frozenset(self.of_group), self.group)
            rows = [row for made in self.together.values() for row in made.rows]
            linear = with_rows(linear, rows, self.together) if rows else linear
        self.linear = linear
        self.rounded = rounded_by_products(linear)
        self.carried = carried_accumulators(linear)
        is_peeled = not dialect.target.work_items
        self.peeled = peeled(linear) if is_peeled else {}
        whole = frozenset().union(*self.peeled.values())
        self.nontemporal = nontemporal_stores(linear, dialect.target, whole)
        self.ahead = (
            prefetched(linear, dialect.target, self.nontemporal) if dialect.has_prefetch else {}
        )
        self.skipped = skipped(linear)
        is_shared_out = dialect.target.work_items
        self.truths_of_all = frozenset[UOp]() if is_shared_out else truths_of_all(linear)
        asks_loads = is_peeled and masks_are_vectors(dialect.target)
        self.unswitched = unswitched(linear, self.skipped, asks_loads)
        self.masks = masks_of_lanes(linear) if asks_loads else frozenset[UOp]()
        self.whole_choices = whole_choices(linear) if asks_loads else {}
        self.growing = growing_masks(linear) if is_peeled else {}
        self.at_last: dict[UOp, int] = {}  # the loop of which the last iteration is written
        self.known_masks: dict[tuple[UOp, ...], tuple[bool | None, ...]] = {}  # in that iteration
        self.ways = two_ways(linear)
        self.of_ways = frozenset().union(
            *[(*w.choices[1:], *w.nodes, *w.before) for w in self.ways.values()]
        )
        self.by_data = masks_by_data(linear)
        self.choices_by_data = choices_by_data(linear)
        self.behind = dict[UOp, tuple[UOp, ...]]()
        if not dialect.target.work_items:
            elsewhere = {*self.of_ways, *self.ways, *self.nontemporal}
            self.behind = behind_masks(linear, self.by_data, elsewhere)
        self.of_behind = frozenset().union(*self.behind.values())
        self.unread = unread_vectors(linear)
        # Where memory is aligned, items write wide pieces of it by themselves (pieces.py).
        is_interleaved = not dialect.target.work_items and dialect.memory_bytes == 1
        self.groups = interleaved_groups(linear) if is_interleaved else {}
        of_groups = frozenset().union(*self.groups.values())
        self.transposed = transposed_stores(linear, of_groups)
        self.between = {} if dialect.target.work_items else interleaved_stores(linear, of_groups)
        together = {**self.groups, **self.transposed, **self.between}
        self.waiting = frozenset().union(*together.values()).difference(together)
        self.tiles = tiles_of(linear) if dialect.has_tiles else {}
        self.has_exit = False
        alone = {*self.by_warps, *self.held}
        self.waits = waits(linear, alone)
        self.copies = copies_of(linear, alone) if dialect.copies_ahead else {}
        self.copied = frozenset(self.copies.values())
        of_items = self.group is not None
        self.read_along: dict[UOp, TransposedLoad] = {}
        self.turns: dict[UOp, tuple[UOp, ...]] = {}
        if of_items:
            self.turns = turns_written_out(linear, self.group, self.copied)
        elif not dialect.target.work_items:
            self.turns, self.read_along = transposed_loads(linear)
        self.of_words = {load.src[0] for load, masks in self.read_along.items() if masks.run > 1}
        self.rows = self._rows_together()
        followers = {load for made in self.rows.values() for load in made.loads}
        self.with_first = followers.difference(self.rows)
        self.unread |= positions_of_followers(linear, self.rows)
        words = list[Word]()
        if dialect.dot_bits and not dialect.target.work_items:
            turned = {node for inside in self.turns.values() for node in inside}
            words = words_of_neighbours(
                linear, {*followers, *self.of_ways, *self.of_behind, *turned, *self.tiles}
            )
        self.words = {word.last: word for word in words}
        within = within_words(linear, words)
        self.in_words = alone_in_words(linear, words, within)
        self.unread |= within
        self.turn: Turn | None = None
        self.filled_ahead = filled_ahead(linear) if of_items else {}
        asked = (self.unswitched, self.peeled, self.growing, self.turns, self.filled_ahead)
        self.starts = frozenset().union(*asked)  # of what is not written node by node
        self.straight = {ahead.parts for ahead in self.filled_ahead.values()}
        self.term_block, self.terms = "", list[UOp]()
        self.shared = 0  # open loops that the items of a group share out
        self.unrolled = 0  # loops that LLVM shall write out
        self.scratch: list[str] = []  # lines that make room, once in a call
        self.release: list[str] = []

    def _rows_together(self) -> dict[UOp, Rows]:
        """The loads whose rows are read together: on machines without work items, where lanes are put together one by one."""
        if self.dialect.target.work_items or self.tiles:
            return {}
        others = {node for inside in self.turns.values() for node in inside}
        others |= {n for n in self.linear.src if n.op is LOAD and self._is_by_few(n)}
        return loads_of_rows(self.linear, others | self.ahead.keys())

    def _is_by_few(self, load: UOp) -> bool:
        """Whether few instructions read lanes that lie apart: a gather, or whole vectors out of which they are picked."""
        if self.dialect.is_gathered(load.dtype):
            return True
        apart = lanes_apart(load.src[0].src[1]) if len(load.src[0].src) == 2 else None
        step = step_of(apart[1]) if apart is not None else 0
        return step != 0 and picks_lanes(self.dialect, step, load.dtype)

    def _where_all(self, truths: tuple[UOp, ...]) -> str:
        """The register that says whether all of some truths hold, on all lanes."""
        first, *rest = [self._on_all_lanes(truth) for truth in truths]
        for other in rest:
            first = self.writer.let(f"and i1 {first}, {other}")
        return first

    def _on_all_lanes(self, truth: UOp) -> str:
        return self._register(truth) if truth.dtype.lanes == 1 else self._are_lanes(truth, -1)

    def _on_no_lane(self, truth: UOp) -> str:
        return self._are_lanes(truth, 0)

    def _are_lanes(self, truth: UOp, bits: int) -> str:
        """The register that says whether the lanes of a truth are these bits."""
        kind, lanes = register_type(truth.dtype), truth.dtype.lanes
        found = self.writer.let(f"bitcast {kind} {self._register(truth)} to i{lanes}")
        return self.writer.let(f"icmp eq i{lanes} {found}, {bits}")

    def _register(self, node: UOp) -> str:
        op = node.op
        if op is ACCUMULATOR:
            return self.current[node]
        known = self.registers.get(node)
        if known is not None:
            return known
        if op is CONST:
            text = literal(node.arg, node.dtype)
        elif op is BROADCAST and node.src[0].op is CONST:
            text = literal(node.src[0].arg, node.dtype)
        else:
            raise CompileError(f"Linear of {self.name} uses a {op.name} before it is made")
        self.registers[node] = text
        return text

    def _term(self, wanted: UOp) -> str:
        """The register of a term that may be no node of the program."""
        block = self.writer.block
        if block != self.term_block:  # what another block has computed need not be known here
            for term in self.terms:
                self.registers.pop(term, None)
            self.term_block, self.terms = block, []
        for term in toposort((wanted,), lambda n: n not in self.registers):
            if term not in self.registers and term.op is not CONST:
                self._write(term)
                self.terms.append(term)
        return self._register(wanted)

    def _wait_for_group(self, on_their_way: int) -> None:
        """All items wait for each other; the last so many groups of their copies may be on their way."""
        if self.copies:
            self.writer.do(self.dialect.wait_for_copies(on_their_way))
        self.writer.do(self.dialect.wait_for_group())

    @abstractmethod
    def _write(self, node: UOp) -> None:
        """The instructions of one node."""

    @abstractmethod
    def _load_transposed(self, node: UOp, masks: TransposedLoad) -> list[str]:
        """A vector for each turn, read along its rows."""
