"""How a kernel begins in the LLVM IR for NVIDIA GPUs.

Owns: signature, address spaces, the number of the work item. Does not own: instructions
(backends/llvm), PTX text (emit.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from proofgrad.backends.llvm.dialect import Dialect, GroupNeeds
from proofgrad.backends.ptx.matrix_units import write_product
from proofgrad.core.compile.machine.target import Target
from proofgrad.core.compile.schedule.occupancy import GroupShape, groups_of_unit
from proofgrad.core.ir.dtypes import DType
from proofgrad.core.ir.ops import Ops

# ex2.approx.f32 and lg2.approx.f32, which keep denormal numbers. Source: PTX ISA, "ex2" and "lg2": a relative error of at most 2**-22, and for
# lg2 of numbers between 1/2 and 2 an absolute one of 2**-22.
FUNCTIONS = {Ops.EXP2: "nvvm.ex2.approx.f", Ops.LOG2: "nvvm.lg2.approx.f"}

# A multiprocessor, as to registers, and the words of sums from which on a bound on them is worth it.
UNIT_REGISTERS, LEAST_HELD = 1 << 16, 32
UNIT = Target("sm", unit_registers=UNIT_REGISTERS, lockstep=32)
FREE_ITEMS = 256  # of a block, that are given all 255 registers that an instruction names: fewer than there are
# Of a block. Source: CUDA C++ Programming Guide, "Compute Capabilities": on every GPU, as are 65536 registers for them.
MOST_ITEMS = 1024
# In registers of an item, for a part of a row: half of the 64 registers of 4 bytes that each of so many items has.
ROW_PART_BYTES = 128


class PTXDialect(Dialect):
    """`entry(pointer, pointer, ...)`: a kernel with one pointer to global memory a slot in use."""

    language = "ptx"
    pointer = "ptr addrspace(1)"
    pointer_code = "p1"
    constant_space = "addrspace(1)"
    has_wide_shifts = (
        False  # 32 bits: of a longer amount LLVM drops the rest, whatever it was compared with
    )
    group_pointer, group_pointer_code = "ptr addrspace(3)", "p3"
    group_bytes = (
        48 << 10
    )  # Source: PTX ISA, "Shared State Space"; CUDA C++ Programming Guide, "Compute Capabilities"
    row_part_bytes = ROW_PART_BYTES
    item_pointer, item_pointer_code = "ptr", "p0"
    memory_bytes = 16  # the driver's own memory is aligned to 256
    has_modifiers = True
    keeps_in_registers = True
    exchanges = True
    functions = FUNCTIONS
    has_prefetch = False  # other threads run while one waits

    def __init__(self, copies_ahead: bool) -> None:
        self.copies_ahead = copies_ahead
        self.loads_matrices = copies_ahead  # ldmatrix is older
        self.has_extremes = copies_ahead  # max.NaN.f32
        self.narrows_to_bfloat16 = copies_ahead  # cvt.rn.bf16.f32, and of two at once

    def open(
        self,
        entry: str,
        slots: Iterable[int],
        stored: frozenset[int],
        needs: GroupNeeds | None = None,
    ) -> list[str]:
        """The first lines of a kernel: its signature and the label of its first block.

        What is only read may be loaded through the cache of constants (ld.global.nc). Of sums that items hold in registers the
        compiler is told how many groups shall be on a multiprocessor, so that no register more halves their number.
        """
        attributes = f"noalias align {self.memory_bytes}"
        arguments = []
        for slot in slots:
            access = "" if slot in stored else "readonly "
            arguments.append(f"{self.pointer} {attributes} {access}%buffer{slot}")
        params = ", ".join(arguments)
        bounds = "" if needs is None else _bounds(needs)
        return [f"define ptx_kernel void @{entry}({params}) nounwind {bounds}{{", "entry:"]

    def close(self, entry: str, slots: Iterable[int]) -> list[str]:
        """The last line of a kernel."""
        return ["}"]

    def work_item(self, let: Callable[[str], str], is_wide: bool) -> str:
        """The number of this work item in the whole launch: an i64, or an i32 where that is enough."""
        kind = "i64" if is_wide else "i32"
        names = ("ctaid.x", "ntid.x", "tid.x")
        group, size, lane = [_register(let, name, is_wide) for name in names]
        first = let(f"mul {kind} {group}, {size}")
        return let(f"add {kind} {first}, {lane}")

    def group(self, let: Callable[[str], str]) -> str:
        """The number of the block of this item."""
        return _register(let, "ctaid.x")

    def item_of_group(self, let: Callable[[str], str]) -> str:
        """The number of this item in its block."""
        return _register(let, "tid.x")

    def memory_of_group(self, name: str, array: str) -> str:
        """Shared memory of a block."""
        return f"{name} = internal addrspace(3) global {array} undef, align 16"

    def memory_from_launch(self, name: str) -> str:
        """Shared memory of a block, as much as the launch gives: an array of unknown size."""
        return f"{name} = external addrspace(3) global [0 x i8], align 16"

    def wait_for_group(self) -> str:
        """A barrier, for memory of the block as well."""
        return "call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)"

    def begin_copy(self, target: str, source: str, nbytes: int, size: str | None) -> str:
        """cp.async; 16 bytes pass the first cache by."""
        cache, form = "cg" if nbytes == 16 else "ca", "" if size is None else ".s"
        pointers = f"{self.group_pointer} {target}, {self.pointer} {source}"
        counted = "" if size is None else f", i32 {size}"
        name = f"llvm.nvvm.cp.async.{cache}.shared.global.{nbytes}{form}"
        return f"call void @{name}({pointers}{counted})"

    def end_copies(self) -> str:
        """cp.async.commit_group."""
        return "call void @llvm.nvvm.cp.async.commit.group()"

    def wait_for_copies(self, on_their_way: int = 0) -> str:
        """cp.async.wait_all, or of groups of copies but for the last."""
        if on_their_way:
            return f"call void @llvm.nvvm.cp.async.wait.group(i32 {on_their_way})"
        return "call void @llvm.nvvm.cp.async.wait.all()"

    def product_of_fragments(
        self,
        let: Callable[[str], str],
        types: tuple[DType, DType],
        before: str,
        column: str,
        rows: Sequence[str],
        steps: int,
    ) -> str:
        """mma.sync, one or more."""
        return write_product(let, types, before, column, rows, steps)

    def word_of_item(self, let: Callable[[str], str], word: str, item: str) -> str:
        """shfl.sync.idx."""
        return let(f"call i32 @llvm.nvvm.shfl.sync.idx.i32(i32 -1, i32 {word}, i32 {item}, i32 31)")

    def word_across(self, let: Callable[[str], str], word: str, bits: int) -> str:
        """shfl.sync.bfly."""
        return let(
            f"call i32 @llvm.nvvm.shfl.sync.bfly.i32(i32 -1, i32 {word}, i32 {bits}, i32 31)"
        )

    def load_matrices(self, let: Callable[[str], str], address: str, is_across: bool) -> list[str]:
        """ldmatrix, transposed where rows lie across the steps of a sum."""
        words, turned = "{i32, i32, i32, i32}", ".trans" if is_across else ""
        name = f"llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4{turned}.b16.{self.group_pointer_code}"
        made = let(f"call {words} @{name}({self.group_pointer} {address})")
        return [let(f"extractvalue {words} {made}, {k}") for k in range(4)]


def _bounds(needs: GroupNeeds) -> str:
    """Attributes for .maxntid and .minnctapersm: as many groups as have registers for their sums, or make up the largest group."""
    size = f'"nvvm.maxntid"="{needs.items}" '
    if needs.holds_rows:
        return f'{size}"nvvm.minctasm"="{max(1, MOST_ITEMS // needs.items)}" '
    if needs.held_words < LEAST_HELD:
        return size if needs.items > FREE_ITEMS else ""
    groups = groups_of_unit(GroupShape(needs.items, needs.held_words, 0), UNIT)
    return f'{size}"nvvm.minctasm"="{groups}" '


def _register(let: Callable[[str], str], name: str, is_wide: bool = False) -> str:
    number = let(f"call i32 @llvm.nvvm.read.ptx.sreg.{name}()")
    return let(f"zext i32 {number} to i64") if is_wide else number
