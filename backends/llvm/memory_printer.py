"""Where a kernel reads and writes, in LLVM IR: positions, loads, stores, copies, what is kept.

Owns: which of the forms of memory.py and others a node takes. Does not own: those forms.
"""

from __future__ import annotations

from proofgrad.backends.llvm.alignment import largest_power_of_two
from proofgrad.backends.llvm.conversions import write_cast
from proofgrad.backends.llvm.copies import is_aligned, write_copy
from proofgrad.backends.llvm.held import room_in_item
from proofgrad.backends.llvm.interleave import write_interleaved
from proofgrad.backends.llvm.interleaved_groups import may_interleave, write_group
from proofgrad.backends.llvm.lanes_off import known_lanes
from proofgrad.backends.llvm.matrix_loads import before_rounding
from proofgrad.backends.llvm.memory import (
    Position,
    write_address,
    write_load,
    write_nontemporal_store,
    write_prefetch,
    write_store,
)
from proofgrad.backends.llvm.neighbours import write_words
from proofgrad.backends.llvm.pieces import lanes_from, load_pieces, store_pieces
from proofgrad.backends.llvm.prefetch_tiles import Hint
from proofgrad.backends.llvm.printer_state import PrinterState
from proofgrad.backends.llvm.register_transpose import write_transposed_stores
from proofgrad.backends.llvm.rows_together import write_rows
from proofgrad.backends.llvm.strided import is_read_whole, is_written_whole, load_whole, store_whole
from proofgrad.backends.llvm.text import literal, memory_type, register_type
from proofgrad.backends.llvm.tiles import (
    write_nothing,
    write_product,
    write_tile_load,
    write_tile_store,
)
from proofgrad.backends.llvm.transposed_loads import (
    STEPS,
    Masks,
    TransposedLoad,
    both,
    mask_of_steps,
    write_transposed_loads,
)
from proofgrad.backends.llvm.vector_tiles import write_product_of_vectors
from proofgrad.backends.llvm.warp_registers import write_exchanged
from proofgrad.core.compile.lowering.held_by_items import item_of
from proofgrad.core.compile.lowering.held_by_warps import bits_apart
from proofgrad.core.compile.lowering.program_facts import lanes_apart
from proofgrad.core.compile.machine.machine import LINE_BYTES
from proofgrad.core.compile.machine.target import CompileError
from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.fragments import Fragments, fragments_of
from proofgrad.core.ir.op_names import ACCUMULATOR, PARAM
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp, toposort

# Scratch memory up to here lies on the stack of the thread that runs a kernel.
STACK_BYTES = 1 << 16


class MemoryPrinter(PrinterState):
    """Accesses of a kernel."""

    def index(self, node: UOp) -> None:
        """Where an access is."""
        buffer, index = node.src[:2]
        if buffer in self.of_warp:
            return
        mask = self._left_to_ask(node.src[2]) if len(node.src) > 2 else None
        is_held = buffer in self.held
        own = self._index_in_item if is_held else self._index
        position = Position(
            buffer=self._register(buffer),
            element=buffer.dtype.scalar,
            number=own(buffer, index),
            index_dtype=index.dtype,
            mask=None if mask is None else self._register(mask),
            mask_lanes=1 if mask is None else mask.dtype.lanes,
            of_group=buffer in self.of_group,
            of_item=buffer.op is not PARAM and buffer not in self.of_group,
            is_by_data=mask in self.by_data,
        )
        is_aligned = buffer.op is PARAM or buffer in self.of_group
        if self.dialect.memory_bytes > 1 and is_aligned and index.dtype.lanes == 1:
            position = position._replace(multiple_of=largest_power_of_two(index))
        if is_held and index.dtype.lanes == 1:
            address = write_address(self.writer, position, position.number, position.index_dtype)
            position = position._replace(address=address)
        elif index.dtype.lanes == 1:
            position = position._replace(address=self._address(node, position, index))
        elif (apart := lanes_apart(index) or self._lanes_from(node, index)) is not None:
            first, offsets = apart
            multiple = largest_power_of_two(first) if is_aligned else 1
            address = self._address(node, position, first)
            position = position._replace(address=address, offsets=offsets, multiple_of=multiple)
        if mask is not None and mask.dtype.lanes > 1:
            position = position._replace(known=self._known(mask))
        self.positions[node] = position

    def _left_to_ask(self, mask: UOp) -> UOp:
        """Of a mask that has a part which holds on all lanes the other part: of one truth for all lanes that truth."""
        if mask.op is not Ops.AND or mask.dtype.lanes == 1:
            return mask
        left = [x for x in mask.src if self.registers.get(x) != literal(True, x.dtype)]
        if len(left) != 1:
            return mask
        return left[0].src[0] if left[0].op is Ops.BROADCAST else self._left_to_ask(left[0])

    def _known(self, mask: UOp) -> tuple[bool | None, ...]:
        """Of each lane of a mask, whether it is on in the iteration that is written; None where that is not known."""
        if self._is_on(mask):
            return (True,) * mask.dtype.lanes
        key = mask, *self.at_last
        if key not in self.known_masks:
            self.known_masks[key] = known_lanes(mask, self.at_last)
        return self.known_masks[key]

    def _address(self, node: UOp, position: Position, first: UOp) -> str:
        """The pointer to an element; in a loop that is written out, from that of the first iteration, if it is so far from it."""
        distance = None if self.turn is None else self.turn.distance(first)
        if self.turn is None or distance is None:
            return write_address(self.writer, position, self._term(first), first.dtype)
        known = position._replace(buffer=str(self.turn.positions[node].address))
        return write_address(self.writer, known, str(distance), dtypes.int64)

    def _index(self, memory: UOp, index: UOp) -> str:
        """The register of an index; none of a vector that is not needed."""
        return "" if index in self.unread else self._register(index)

    def _index_in_item(self, memory: UOp, index: UOp) -> str:
        """Where an element is in what this item has: the turn, of the position without the item, and the lane behind it."""
        item = item_of(index)
        assert item is not None  # held_by_items
        known = dict(self.registers)
        turn = index.substitute({item: item.const_like(0)})
        for node in toposort((turn,)):
            if node not in self.registers:
                self._write(node)
        kind, whole, held = register_type(index.dtype), self._register(turn), self.held[memory]
        self.registers = known
        let = self.writer.let
        lane = let(f"urem {kind} {whole}, {held.lanes * held.items}")
        own = let(f"udiv exact {kind} {let(f'sub {kind} {whole}, {lane}')}, {held.items}")
        return let(f"add {kind} {own}, {lane}")

    def _lanes_from(self, node: UOp, index: UOp) -> tuple[UOp, tuple[int, ...]] | None:
        """Where a machine reads and writes aligned pieces, those that lanes lie in are worth it; and where rows of words are turned around."""
        is_worth_it = self.dialect.memory_bytes > 1 or node in self.of_words
        return lanes_from(index) if is_worth_it else None

    def product_of_fragments(self, node: UOp) -> None:
        """An MMA of vectors of what this item holds."""
        parts = fragments_of(node)
        if parts.square is not None:
            self.registers[node] = self._product_in_item(node, parts)
            return
        factors, types = (parts.column, *parts.rows), (parts.column.dtype.scalar, node.dtype.scalar)
        if types[0] is dtypes.float32 and not all([x.op is Ops.TF32 for x in factors]):
            raise CompileError("units take factors of float32 that are rounded to TF32 alone")
        before, column, *rows = [
            self._register(x) for x in (parts.before, *map(before_rounding, factors))
        ]
        self.registers[node] = self.dialect.product_of_fragments(
            self.writer.let, types, before, column, rows, parts.steps
        )

    def _product_in_item(self, node: UOp, parts: Fragments) -> str:
        """The same where this item holds all."""
        (rows,), nothing = parts.rows, parts.before.op is not ACCUMULATOR
        column, row = self._register(parts.column), self._register(rows)
        if node in self.tiles:
            size = self.tiles[node]
            before = write_nothing(self.writer, size) if nothing else self.current[parts.before]
            return write_product(self.writer, node, before, column, row)
        rows_at = self.positions.get(rows.src[0]) if rows.op is Ops.LOAD else None
        before = self._register(parts.before)
        return write_product_of_vectors(self.writer, node, before, (column, row), rows_at)

    def load(self, node: UOp) -> None:
        """What is read there; what is asked for ahead of its use."""
        if node in self.copies or node in self.with_first:
            return
        if node in self.read_of_warp:
            self.registers[node] = self._of_other_item(node)
            return
        position = self.positions[node.src[0]]
        if (word := self.words.get(node)) is not None:
            lower, upper = [self.positions[load.src[0]] for load in (word.lower, word.upper)]
            self.registers[word.whole] = write_words(self.writer, lower, upper, node.dtype)
        if node in self.in_words:
            pass  # read with its neighbours
        elif node in self.rows:
            loads, first = self.rows[node]
            made = write_rows(self.writer, position, node.dtype, first)
            self.registers.update(zip(loads, made))
        elif node in self.together:
            self._load_of_warp(node, position)
        elif node in self.tiles:
            self.registers[node] = write_tile_load(self.writer, position, self.tiles[node])
        else:
            is_plain = position.mask is None and not node.dtype.is_bool
            if is_plain and self._lies_in_pieces(position):
                load = load_pieces
            else:
                is_whole = is_read_whole(self.dialect, position, node.dtype)
                load = load_whole if is_whole else write_load
            self.registers[node] = load(self.writer, position, node.dtype)
        for hint in self.ahead.get(node, ()):
            self.prefetch(position, hint)

    def _of_other_item(self, node: UOp) -> str:
        """What an item of the warp holds; often itself, or the one whose number differs in a bit."""
        index = node.src[0].src[1]
        value, apart = self._register(node.src[0].src[0]), bits_apart(self.read_of_warp[node])
        if apart == 0:
            return value
        let, dialect = self.writer.let, self.dialect
        if apart is not None:
            return write_exchanged(
                self.writer, node.dtype, value, lambda word: dialect.word_across(let, word, apart)
            )
        item = write_cast(self.writer, self._register(index), index.dtype, dtypes.int32)
        return write_exchanged(
            self.writer, node.dtype, value, lambda word: dialect.word_of_item(let, word, item)
        )

    def _load_transposed(self, node: UOp, masks: TransposedLoad) -> list[str]:
        """Four steps of what lies across, read along its rows."""
        writer, dtype = self.writer, node.dtype
        truths = [(self._register(truth), truth.dtype.lanes) for truth in masks.same]
        wide = dtypes.bool.vec(dtype.lanes)
        same = [one if lanes > 1 else writer.splat(one, wide) for one, lanes in truths]
        ends = [
            mask_of_steps(writer, self._register(step), step.dtype, bound.arg)
            for step, bound in [end.src for end in masks.ends]
        ]
        of_lanes, of_steps = both(writer, dtype.lanes, same), both(writer, STEPS, ends)
        position = self.positions[node.src[0]]
        return write_transposed_loads(writer, position, dtype, masks, Masks(of_lanes, of_steps))

    def _load_of_warp(self, node: UOp, position: Position) -> None:
        """What an item gets of the rows of which each gives one, by the last of the loads that are made together."""
        together, let = self.together[node], self.writer.let
        if node is not together.last:
            return
        words: list[str] = []
        for row in together.rows:
            place = row.position
            start = write_address(self.writer, position, self._register(place), place.dtype)
            known = position._replace(buffer=start)
            address = write_address(self.writer, known, str(row.behind), dtypes.int64)
            words += self.dialect.load_matrices(let, address, together.is_across)
        for k, load in enumerate(together.loads):
            own, vector = words[k :: len(together.loads)], "poison"
            for number, word in enumerate(own):
                vector = let(f"insertelement <{len(own)} x i32> {vector}, i32 {word}, i64 {number}")
            whole = f"bitcast <{len(own)} x i32> {vector} to {memory_type(load.dtype)}"
            self.registers[load] = let(whole)

    def prefetch(self, position: Position, hint: Hint) -> None:
        """What is asked for ahead of its use."""
        buffer, element = hint.buffer, position.element
        line = position.address
        if buffer is not None:
            line, element = self._register(buffer), buffer.dtype.scalar
        assert line is not None
        parts = [f"i64 {hint.elements}"]
        parts += [f"{register_type(part.dtype)} {self._register(part)}" for part in hint.parts]
        for term in hint.along:
            llvm_type, number = register_type(term.loop.dtype), self._register(term.loop)
            if term.divisor != 1:
                number = self.writer.let(f"udiv {llvm_type} {number}, {term.divisor}", "part")
            if term.modulus:
                number = self.writer.let(f"urem {llvm_type} {number}, {term.modulus}", "part")
            far = self.writer.let(f"mul {llvm_type} {number}, {term.elements}", "far")
            parts.append(f"{llvm_type} {far}")
        write_prefetch(self.writer, element, line, parts, hint.cache, hint.is_written)

    def store(self, node: UOp) -> None:
        """A value written, or a tile of values."""
        position, value = node.src[:2]
        for hint in self.ahead.get(node, ()):
            self.prefetch(self.positions[position], hint)
        if node in self.waiting:
            return
        if position.src[0] in self.of_warp:
            self.registers[position.src[0]] = self._register(value)
            return
        if value in self.tiles:
            size, tile = self.tiles[value], self._register(value)
            return write_tile_store(self.writer, self.positions[position], size, tile)
        if node in self.groups:
            return self._store_group(self.groups[node])
        if node in self.transposed:
            return self._store_transposed(self.transposed[node])
        if node in self.copied:
            return self._copy(node)
        if node in self.between:
            rows = [self._register(row.src[1]) for row in self.between[node]]
            first = self.positions[self.between[node][0].src[0]]
            return write_interleaved(self.writer, first, value.dtype, rows)
        if self._lies_in_pieces(self.positions[position]) and not self._is_every_items(
            position.src[0]
        ):
            register = self._register(value)
            return store_pieces(self.writer, self.positions[position], value.dtype, register)
        write = write_nontemporal_store if node in self.nontemporal else write_store
        if is_written_whole(self.dialect, self.positions[position]):
            write = store_whole
        if self._is_every_items(position.src[0]):
            return self._store_once(position, value)
        write(self.writer, self.positions[position], value.dtype, self._register(value))

    def _store_group(self, stores: tuple[UOp, ...]) -> None:
        """Vectors between each other; where lanes are left out that are not known, each by itself."""
        dtype, rows = stores[0].src[1].dtype, [self._register(store.src[1]) for store in stores]
        positions = [self.positions[store.src[0]] for store in stores]
        if may_interleave(positions):
            return write_group(self.writer, positions[0], dtype, rows)
        for position, row in zip(positions, rows):
            write_store(self.writer, position, dtype, row)

    def _store_transposed(self, stores: tuple[UOp, ...]) -> None:
        """Four rows, transposed; where a mask leaves out one of them, or some of their lanes, each by itself."""
        dtype, rows = stores[0].src[1].dtype, [self._register(store.src[1]) for store in stores]
        positions = [self.positions[store.src[0]] for store in stores]
        masks = dict.fromkeys([mask for store in stores for mask in store.src[0].src[2:]])
        asked = tuple([mask for mask in masks if not self._is_on(mask)])
        if not asked:
            return write_transposed_stores(self.writer, positions[0], dtype, rows)
        writer, label = self.writer, self.writer.fresh("rows")
        is_one = asked[0].dtype.lanes == 1 and all([s.src[0].src[2:] == asked for s in stores])
        other = "end" if is_one else "each"  # all rows, or none
        whole = self._where_all(asked)
        writer.do(f"br i1 {whole}, label %{label}.whole, label %{label}.{other}")
        writer.begin_block(f"{label}.whole")
        write_transposed_stores(writer, positions[0], dtype, rows)
        writer.do(f"br label %{label}.end")
        if not is_one:
            writer.begin_block(f"{label}.each")
            for position, row in zip(positions, rows):
                write_store(writer, position, dtype, row)
            writer.do(f"br label %{label}.end")
        writer.begin_block(f"{label}.end")

    def _is_on(self, mask: UOp) -> bool:
        """Whether a mask is settled for all of a loop."""
        return self._register(mask) == literal(True, mask.dtype)

    def _lies_in_pieces(self, position: Position) -> bool:
        """Whether lanes are neighbours in memory that a machine reads and writes in wide pieces."""
        is_wide = self.dialect.memory_bytes > 1 and not position.element.is_bool
        return is_wide and position.offsets is not None

    def _copy(self, node: UOp) -> None:
        """A copy that goes on by itself, where both sides are aligned to it."""
        source, value = self.positions[node.src[1].src[0]], node.src[1]
        target = self.positions[node.src[0]]
        if is_aligned(self.writer, target, source, value.dtype):
            return write_copy(self.writer, target, source, value.dtype)
        loaded = write_load(self.writer, source, value.dtype)
        write_store(self.writer, target, value.dtype, loaded)

    def _is_every_items(self, memory: UOp) -> bool:
        """Whether all items of a group come to a store of what one of them stores."""
        return self.group is not None and memory.op is Ops.PARAM and not self.shared

    def _store_once(self, position: UOp, value: UOp) -> None:
        writer = self.writer
        item, label = self.dialect.item_of_group(writer.let), writer.fresh("one")
        first = writer.let(f"icmp eq i32 {item}, 0")
        writer.do(f"br i1 {first}, label %{label}, label %{label}.end")
        writer.begin_block(label)
        write_store(writer, self.positions[position], value.dtype, self._register(value))
        writer.do(f"br label %{label}.end")
        writer.begin_block(f"{label}.end")

    def make_scratch(self, node: UOp) -> None:
        """Room for what is kept."""
        number, size = node.arg
        if node in self.of_warp:
            return
        if node in self.of_group:
            self.registers[node] = self.kept_by_group.pointers[node]
            return
        if node in self.held:
            self.registers[node], line = room_in_item(node, self.held[node])
            self.scratch.append(line)
            return
        name = self.registers[node] = f"%scratch{number}"
        if size * node.dtype.itemsize <= STACK_BYTES:
            apart = size + LINE_BYTES // node.dtype.itemsize  # neighbours in other sets of a cache
            self.scratch.append(
                f"  {name} = alloca [{apart} x {memory_type(node.dtype)}], align 64"
            )
            return
        pointer = self.dialect.pointer
        self.scratch += [
            f"  {name}.all = call {pointer} @malloc(i64 {size * node.dtype.itemsize + LINE_BYTES})",
            f"  {name}.at = ptrtoint {pointer} {name}.all to i64",
            f"  {name}.end = add i64 {name}.at, {LINE_BYTES - 1}",
            f"  {name}.line = and i64 {name}.end, -{LINE_BYTES}",
            f"  {name} = inttoptr i64 {name}.line to {pointer}",
        ]
        self.release.append(f"  call void @free({pointer} {name}.all)")

    def kept(self, node: UOp) -> None:
        """What was filled, from here on."""
        self.registers[node] = self._register(node.src[0].src[0].src[0])
        if node in self.waits:
            self._wait_for_group(self.waits[node])
