"""Loads and stores: contiguous, masked as a whole or lane by lane, gathered and scattered.

Owns: how elements move between buffers and registers. Does not own: where an address is computed
(emit.py does that where the linearizer put the INDEX).

Pointers are aligned to an element only, but for stores past the caches, and where a dialect says how its buffers are aligned. A load under a false mask reads a block of zeros instead
of the buffer, so it needs no branch; a store under a scalar mask is a branch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from proofgrad.backends.llvm.dialect import Dialect
from proofgrad.backends.llvm.lanes_off import plain_pieces
from proofgrad.backends.llvm.nontemporal import MARK
from proofgrad.backends.llvm.text import memory_type, register_type, type_code
from proofgrad.backends.llvm.writer import Writer
from proofgrad.core.compile.machine.machine import LINE_BYTES
from proofgrad.core.ir.dtypes import DType, dtypes
from proofgrad.core.ir.op_names import INDEX, LOAD
from proofgrad.core.ir.ops import ALU, CASTS, Ops
from proofgrad.core.ir.uop import UOp, toposort

# What a module says that stores past the caches.
NONTEMPORAL = "!0 = !{i32 1}"
# And one in which a load's mask, or its position, depends on data: a branch would be mispredicted. LLVM makes one of a choice without it.
UNPREDICTABLE = "!1 = !{}"


class Position(NamedTuple):
    """The registers of an INDEX. With a vector index, `address` is None until it is needed.

    With `offsets`, lane k is so many elements behind `address`.
    """

    buffer: str
    element: DType
    number: str  # the register of the index
    index_dtype: DType
    address: str | None = None
    mask: str | None = None
    mask_lanes: int = 1
    known: tuple[bool | None, ...] = (None,)  # of each lane of the mask; None: a kernel computes it
    offsets: tuple[int, ...] | None = None
    multiple_of: int = 1  # a power of two that the index is a multiple of
    of_group: bool = False  # memory of a group of work items
    of_item: bool = False  # memory that an item has to itself
    is_by_data: bool = False  # whether the mask depends on what was loaded

    def pointer(self, dialect: Dialect) -> str:
        """The type of a pointer into the memory."""
        if self.of_item:
            return dialect.item_pointer
        return dialect.group_pointer if self.of_group else dialect.pointer

    def pointer_code(self, dialect: Dialect) -> str:
        """The same in the names of intrinsics."""
        if self.of_item:
            return dialect.item_pointer_code
        return dialect.group_pointer_code if self.of_group else dialect.pointer_code


def masks_by_data(linear: UOp) -> set[UOp]:
    """The masks of accesses that depend on what is loaded before."""
    masks = {n.src[2] for n in linear.src if n.op is INDEX and len(n.src) > 2}
    return masks & by_data(linear) if masks else masks


def choices_by_data(linear: UOp) -> set[UOp]:
    """The choices, of one lane, that positions are made of and that depend on what is loaded before, as an element's number that is taken
    from the end where it is negative.
    """
    made = {n for n in linear.src if n.op in _CHOICES and n.dtype.is_int and n.dtype.lanes == 1}
    if not made:
        return made
    positions = [node.src[1] for node in linear.src if node.op is INDEX]
    made.intersection_update(toposort(positions, lambda n: n.op in ALU or n.op in CASTS))
    return made & by_data(linear)


# To find out whether the lanes of a mask are on: their bits as a number, a comparison, a branch.
ASKING_CYCLES = 2
_CHOICES = (Ops.WHERE, Ops.MAX, Ops.MIN)


def by_data(linear: UOp) -> set[UOp]:
    """The nodes that depend on what is loaded, and the loads."""
    read: set[UOp] = set()
    for node in linear.src:
        if node.op is LOAD or not read.isdisjoint(node.src):
            read.add(node)
    return read


def write_address(writer: Writer, position: Position, index: str, index_dtype: DType) -> str:
    """The pointer (or vector of pointers) to the elements number `index`."""
    base = f"{position.pointer(writer.dialect)} {position.buffer}, {register_type(index_dtype)} {index}"
    return writer.let(f"getelementptr {memory_type(position.element)}, {base}", "at")


def write_load(writer: Writer, position: Position, dtype: DType) -> str:
    """The register with the loaded value of type `dtype`."""
    if position.index_dtype.lanes > 1:
        loaded = _gather(writer, position, dtype)
    elif position.mask_lanes > 1:
        loaded = _load_under_mask(writer, position, dtype)
    else:
        loaded = _load_by_one_mask(writer, position, dtype)
    if not dtype.is_bool:
        return loaded
    zero = "0" if dtype.lanes == 1 else "zeroinitializer"
    return writer.let(f"icmp ne {memory_type(dtype)} {loaded}, {zero}")


def _load_by_one_mask(writer: Writer, position: Position, dtype: DType) -> str:
    address = address_or_zeros(writer, position, dtype)
    loaded = _load(writer, position, address, dtype, alignment(writer, position, dtype))
    if (position.of_group or position.of_item) and position.mask is not None:
        return _or_zero(writer, position.mask, memory_type(dtype), loaded)
    return loaded


def write_prefetch(
    writer: Writer, element: DType, line: str, parts: Sequence[str], cache: int, is_written: bool
) -> None:
    """Ask the first or the second cache for a line: that of a pointer, and `parts` (typed integers) elements on."""
    dialect = writer.dialect
    for part in parts:
        base = f"{memory_type(element)}, {dialect.pointer} {line}"
        line = writer.let(f"getelementptr {base}, {part}", "ahead")
    hints = f"i32 {int(is_written)}, i32 {4 - cache}, i32 1"
    writer.do(f"call void @llvm.prefetch.{dialect.pointer_code}({dialect.pointer} {line}, {hints})")


def address_or_zeros(writer: Writer, position: Position, dtype: DType) -> str:
    """The address of an access; where its mask is off, of something that may be read."""
    assert position.address is not None
    if position.mask is None:
        return position.address
    pointer = position.pointer(writer.dialect)
    if position.of_item:  # every position is inside
        return position.address
    if position.of_group:  # where there are no zeros
        first = (
            f"select i1 {position.mask}, {pointer} {position.address}, {pointer} {position.buffer}"
        )
        return writer.let(first, "at")
    writer.zero_bytes = max(writer.zero_bytes, position.element.itemsize * dtype.lanes)
    choice = f"select i1 {position.mask}, {pointer} {position.address}, {pointer} @zeros"
    return writer.let(f"{choice}, !unpredictable !1" if position.is_by_data else choice, "at")


def _or_zero(writer: Writer, mask: str, kind: str, loaded: str) -> str:
    return writer.let(f"select i1 {mask}, {kind} {loaded}, {kind} zeroinitializer")


def alignment(writer: Writer, position: Position, dtype: DType) -> int:
    """Bytes that an address of a vector, or in memory of a group, is known to be a multiple of.

    LLVM makes one wide load of several next to each other, and may read one element too many: of memory of a group there is
    room for it (emit.py), of what a kernel is given there is not.
    """
    if dtype.lanes == 1 and not position.of_group:
        return dtype.itemsize
    return max(
        dtype.itemsize, min(writer.dialect.memory_bytes, position.multiple_of * dtype.itemsize)
    )


def _load(
    writer: Writer, position: Position, address: str, dtype: DType, alignment: int = 0
) -> str:
    access = f"{memory_type(dtype)}, {position.pointer(writer.dialect)} {address}"
    return writer.let(f"load {access}, align {alignment or dtype.itemsize}", "load")


def _load_under_mask(writer: Writer, position: Position, dtype: DType) -> str:
    """Plain accesses where all lanes are read but those that are known to be off, which is everywhere but at an end."""
    assert position.address is not None
    lanes, vector = position.mask_lanes, memory_type(dtype)
    known = position.known if len(position.known) == lanes else (None,) * lanes
    pieces = plain_pieces(on := [lane is not False for lane in known])
    if not all(known) and (not pieces or writer.dialect.has_masked_access(dtype)):
        return _masked_load(writer, position, dtype)
    if None not in known:
        return _load_pieces(writer, position, dtype, pieces)
    end = ask_lanes(writer, position, "load", on)
    whole = _load_pieces(writer, position, dtype, pieces)
    writer.do(f"br label %{end}")
    writer.begin_block(f"{end}.lanes")
    by_lanes = _masked_load(writer, position, dtype)
    writer.do(f"br label %{end}")
    writer.begin_block(end)
    return writer.let(
        f"phi {vector} [ {whole}, %{end}.whole ], [ {by_lanes}, %{end}.lanes ]", "load"
    )


def _load_pieces(
    writer: Writer, position: Position, dtype: DType, pieces: Sequence[tuple[int, int]]
) -> str:
    """Lanes of a vector, without a mask, and zeros (lanes_off.py)."""
    vector, found = memory_type(dtype), ""
    if pieces == ((0, dtype.lanes),):
        assert position.address is not None
        whole = alignment(writer, position, dtype)
        return _load(writer, position, position.address, dtype, whole)
    for first, count in pieces:
        address, part = _behind(writer, position, first), dtype.scalar.vec(count)
        loaded = _load(writer, position, address, part, dtype.scalar.itemsize)
        narrow, own = memory_type(part), range(first, first + count)
        if count == 1:
            one = f"{vector} {found or 'zeroinitializer'}, {narrow} {loaded}, i64 {first}"
            found = writer.let(f"insertelement {one}")
            continue
        order = _order([k - first if k in own else count for k in range(dtype.lanes)])
        zeros = f"{narrow} {loaded}, {narrow} zeroinitializer, {order}"
        wide = writer.let(f"shufflevector {zeros}")
        if found:
            order = _order([k + dtype.lanes if k in own else k for k in range(dtype.lanes)])
            wide = writer.let(f"shufflevector {vector} {found}, {vector} {wide}, {order}")
        found = wide
    return found


def _behind(writer: Writer, position: Position, elements: int) -> str:
    """The address so many elements behind that of a position."""
    start = f"{position.pointer(writer.dialect)} {position.address}, i64 {elements}"
    return writer.let(f"getelementptr {memory_type(position.element)}, {start}", "at")


def ask_lanes(writer: Writer, position: Position, hint: str, on: Sequence[bool]) -> str:
    """Branch to a block `.whole`, begun here, if just these lanes of a mask hold, else to one `.lanes`; the name of the end."""
    end, lanes = writer.fresh(hint), len(on)
    mask = writer.truths(str(position.mask), lanes)
    found = writer.let(f"bitcast <{lanes} x i1> {mask} to i{lanes}")
    wanted = sum([is_on << lane for lane, is_on in enumerate(on)])
    every = writer.let(f"icmp eq i{lanes} {found}, {wanted}")
    writer.do(f"br i1 {every}, label %{end}.whole, label %{end}.lanes")
    writer.begin_block(f"{end}.whole")
    return end


def _masked_load(writer: Writer, position: Position, dtype: DType) -> str:
    width = writer.dialect.target.vector_bytes // dtype.itemsize
    if len(position.known) == dtype.lanes > width > 1:
        may_be_on = [known is not False for known in position.known]
        parts = [any(may_be_on[k : k + width]) for k in range(0, dtype.lanes, width)]
        if not all(parts):
            return _load_of_parts(writer, position, dtype.scalar.vec(width), parts)
    vector, dialect = memory_type(dtype), writer.dialect
    pointer = f"{position.pointer(dialect)} align {dtype.itemsize} {position.address}"
    operands = f"{pointer}, {_mask(writer, position, dtype)}, {vector} zeroinitializer"
    intrinsic = f"@llvm.masked.load.{type_code(vector)}.{position.pointer_code(dialect)}"
    return writer.let(f"call {vector} {intrinsic}({operands})", "load")


def _load_of_parts(
    writer: Writer, position: Position, part: DType, may_be_on: Sequence[bool]
) -> str:
    """As `_masked_load`, register by register; zeros for those whose lanes are all off (lanes_off.py)."""
    lanes, bools = part.lanes, register_type(dtypes.bool.vec(position.mask_lanes))
    loaded = []
    for k, is_asked in enumerate(may_be_on):
        own = range(k * lanes, (k + 1) * lanes)
        if not is_asked:
            loaded.append("zeroinitializer")
            continue
        mask = writer.let(f"shufflevector {bools} {position.mask}, {bools} poison, {_order(own)}")
        first = f"{memory_type(part.scalar)}, {position.pointer(writer.dialect)} {position.address}"
        address = writer.let(f"getelementptr {first}, i64 {k * lanes}", "at")
        its = position._replace(mask=mask, mask_lanes=lanes, address=address)
        loaded.append(_masked_load(writer, its, part))
    while len(loaded) > 1:
        vector, whole = memory_type(part), _order(range(2 * part.lanes))
        pairs = zip(loaded[::2], loaded[1::2], strict=True)
        loaded = [
            writer.let(f"shufflevector {vector} {low}, {vector} {high}, {whole}")
            for low, high in pairs
        ]
        part = part.scalar.vec(2 * part.lanes)
    return loaded[0]


def _order(lanes: Sequence[int]) -> str:
    return f"<{len(lanes)} x i32> <{', '.join([f'i32 {lane}' for lane in lanes])}>"


def _mask(writer: Writer, position: Position, dtype: DType) -> str:
    """The mask as an operand `<n x i1> ...` with the lanes of `dtype`; of an access without one, ones."""
    bools = dtypes.bool.vec(dtype.lanes)
    if position.mask is None:
        return f"{register_type(bools)} splat (i1 true)"
    is_one = position.mask_lanes == 1
    splat, truths = writer.splat, writer.truths
    mask = splat(position.mask, bools) if is_one else truths(position.mask, dtype.lanes)
    return f"{register_type(bools)} {mask}"


def _gather(writer: Writer, position: Position, dtype: DType) -> str:
    vector, dialect = memory_type(dtype), writer.dialect
    is_asked = position.mask is not None and dialect.target.work_items
    if is_asked or dialect.is_gathered(dtype):
        operands = f"{_pointers(writer, position, dtype)}, {_mask(writer, position, dtype)}"
        intrinsic = f"@llvm.masked.gather.{_pointers_code(writer, dtype)}"
        zeros = f"{vector} zeroinitializer"
        return writer.let(f"call {vector} {intrinsic}({operands}, {zeros})", "load")
    gathered = "poison"
    for lane in range(dtype.lanes):
        scalar = load_of_lane(writer, position, lane, dtype.scalar)
        element = f"{memory_type(dtype.scalar)} {scalar}"
        gathered = writer.let(f"insertelement {vector} {gathered}, {element}, i64 {lane}")
    return gathered


def load_of_lane(writer: Writer, position: Position, lane: int, dtype: DType) -> str:
    """What is read from the element of one lane on, under its mask: LLVM has a branch for each lane of a gather that is no instruction."""
    mask, address = position.mask, lane_address(writer, position, lane)
    if mask is not None and position.mask_lanes > 1:
        is_on = len(position.known) > lane and position.known[lane]
        bools = dtypes.bool.vec(position.mask_lanes)
        mask = None if is_on else writer.lane(mask, bools, lane)
    its = position._replace(address=address, mask=mask, mask_lanes=1)
    return _load_by_one_mask(writer, its, dtype)


def lane_address(writer: Writer, position: Position, lane: int) -> str:
    """The pointer to the element of one lane of a position with a vector index."""
    if position.offsets is not None:
        first = (
            f"{position.pointer(writer.dialect)} {position.address}, i64 {position.offsets[lane]}"
        )
        return writer.let(f"getelementptr {memory_type(position.element)}, {first}", "at")
    index = writer.lane(position.number, position.index_dtype, lane)
    return write_address(writer, position, index, position.index_dtype.scalar)


def _pointers(writer: Writer, position: Position, dtype: DType) -> str:
    """Operand: one pointer a lane; of lanes that are known to be so far behind an address, from it on."""
    if position.offsets is None:
        pointers = write_address(writer, position, position.number, position.index_dtype)
    else:
        first = f"{position.pointer(writer.dialect)} {position.address}"
        behind = ", ".join([f"i64 {offset}" for offset in position.offsets])
        lanes = f"{memory_type(position.element)}, {first}, <{dtype.lanes} x i64> <{behind}>"
        pointers = writer.let(f"getelementptr {lanes}", "at")
    return f"<{dtype.lanes} x {position.pointer(writer.dialect)}> align {dtype.itemsize} {pointers}"


def _pointers_code(writer: Writer, dtype: DType) -> str:
    return f"{type_code(memory_type(dtype))}.v{dtype.lanes}{writer.dialect.pointer_code}"


def write_nontemporal_store(writer: Writer, position: Position, dtype: DType, value: str) -> None:
    """Store whole lines of memory, or half of one, past the caches, if the mask of all lanes is on; the module has `NONTEMPORAL`.

    What lanes are left out of goes to the caches.
    """
    if position.mask is not None and position.mask_lanes > 1:
        if len(position.known) != position.mask_lanes or not all(position.known):
            return write_store(writer, position, dtype, value)
    elif position.mask is not None:
        return _store_if(writer, position, dtype, value, write_nontemporal_store)
    align = min(LINE_BYTES, dtype.lanes * dtype.itemsize)
    target = f"{writer.dialect.pointer} {position.address}, align {align}{MARK}"
    writer.do(f"store {memory_type(dtype)} {value}, {target}")


def write_store(writer: Writer, position: Position, dtype: DType, value: str) -> None:
    """Store the register `value` of type `dtype`."""
    if dtype.is_bool:
        value = writer.let(f"zext {register_type(dtype)} {value} to {memory_type(dtype)}")
    if position.mask is None or position.mask_lanes > 1:
        return _store_lanes(writer, position, dtype, value)
    _store_if(writer, position, dtype, value, _store_lanes)


def _store_if(
    writer: Writer,
    position: Position,
    dtype: DType,
    value: str,
    store: Callable[[Writer, Position, DType, str], None],
) -> None:
    """Branch around a store whose one mask is off."""
    label = writer.fresh("store")
    writer.do(f"br i1 {position.mask}, label %{label}, label %{label}.end")
    writer.begin_block(label)
    store(writer, position._replace(mask=None), dtype, value)
    writer.do(f"br label %{label}.end")
    writer.begin_block(f"{label}.end")


def _store_lanes(writer: Writer, position: Position, dtype: DType, value: str) -> None:
    if position.index_dtype.lanes > 1:
        _scatter(writer, position, dtype, value)
    elif position.mask is not None:
        _store_under_mask(writer, position, dtype, value)
    else:
        assert position.address is not None
        _store(writer, position, position.address, dtype, value, alignment(writer, position, dtype))


def _store_under_mask(writer: Writer, position: Position, dtype: DType, value: str) -> None:
    """One or two plain stores where all lanes are on but those that are known to be off, if that takes less than one under the mask."""
    lanes, cycles = position.mask_lanes, writer.dialect.masked_store_cycles(dtype)
    known = position.known if len(position.known) == lanes else (None,) * lanes
    pieces = plain_pieces(on := [lane is not False for lane in known])
    if None not in known:
        is_one = known.count(True) == 1  # lanes_off.py
        if pieces and (is_one or all(known) or len(pieces) < cycles):
            return _store_pieces(writer, position, dtype, value, pieces)
    elif pieces and len(pieces) + ASKING_CYCLES < cycles and not position.is_by_data:
        end = ask_lanes(writer, position, "store", on)
        _store_pieces(writer, position, dtype, value, pieces)
        writer.do(f"br label %{end}")
        writer.begin_block(f"{end}.lanes")
        _masked_store(writer, position, dtype, value)
        writer.do(f"br label %{end}")
        return writer.begin_block(end)
    _masked_store(writer, position, dtype, value)


def _masked_store(writer: Writer, position: Position, dtype: DType, value: str) -> None:
    vector, dialect = memory_type(dtype), writer.dialect
    pointer = f"{position.pointer(dialect)} align {dtype.itemsize} {position.address}"
    operands = f"{vector} {value}, {pointer}, {_mask(writer, position, dtype)}"
    intrinsic = f"@llvm.masked.store.{type_code(vector)}.{position.pointer_code(dialect)}"
    writer.do(f"call void {intrinsic}({operands})")


def _store_pieces(
    writer: Writer, position: Position, dtype: DType, value: str, pieces: Sequence[tuple[int, int]]
) -> None:
    """Lanes of a vector, without a mask (lanes_off.py)."""
    vector = memory_type(dtype)
    if pieces == ((0, dtype.lanes),):
        assert position.address is not None
        whole = alignment(writer, position, dtype)
        return _store(writer, position, position.address, dtype, value, whole)
    for first, count in pieces:
        address = _behind(writer, position, first)
        if count == 1:
            part = writer.let(f"extractelement {vector} {value}, i64 {first}")
        else:
            own = _order(range(first, first + count))
            part = writer.let(f"shufflevector {vector} {value}, {vector} poison, {own}")
        _store(writer, position, address, dtype.scalar.vec(count), part, dtype.scalar.itemsize)


def _store(
    writer: Writer, position: Position, address: str, dtype: DType, value: str, alignment: int = 0
) -> None:
    target = f"{position.pointer(writer.dialect)} {address}, align {alignment or dtype.itemsize}"
    writer.do(f"store {memory_type(dtype)} {value}, {target}")


def _scatter(writer: Writer, position: Position, dtype: DType, value: str) -> None:
    vector = memory_type(dtype)
    if position.mask is not None or writer.dialect.is_scattered(dtype, position.offsets):
        pointers, mask = _pointers(writer, position, dtype), _mask(writer, position, dtype)
        intrinsic = f"@llvm.masked.scatter.{_pointers_code(writer, dtype)}"
        writer.do(f"call void {intrinsic}({vector} {value}, {pointers}, {mask})")
        return
    for lane in range(dtype.lanes):
        address = lane_address(writer, position, lane)
        element = writer.let(f"extractelement {vector} {value}, i64 {lane}")
        _store(writer, position, address, dtype.scalar, element)
