"""What differs between machines that take LLVM IR: how a kernel begins, and a few choices.

Owns: the base class `Dialect`, which is also the one of the CPU. Does not own: instructions, which
are the same for every machine. The PTX backend has a dialect of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from proofgrad.core.compile.machine.target import CompileError, Target
from proofgrad.core.ir.dtypes import DType
from proofgrad.core.ir.ops import Ops

# Elements, and vectors of how many, that x86's instructions gather; two are sooner read one by one.
GATHERED_BYTES, GATHERED_LANES = (4, 8), 4
# Elements of the vectors that AVX and AVX2 load and store under a mask, at least.
AVX_MASKED_BYTES = 4


@dataclass(frozen=True, slots=True)
class WordDot:
    """An instruction, by LLVM's name, that adds to each of so many words the products of what the words of its two factors hold."""

    name: str
    words: int
    first: DType
    second: DType
    total: DType
    most_a_cycle: int = 2  # that a core starts, of as many as it does multiply-adds
    flushes: bool = False  # denormal numbers count as 0

    @property
    def group(self) -> int:
        """Elements of a factor in a word."""
        return self.total.itemsize // self.first.itemsize


@dataclass(frozen=True, slots=True)
class GroupNeeds:
    """Items of a group, words of 4 bytes that each is known to hold through a loop (its sums), whether it holds a part of a row."""

    items: int
    held_words: int
    holds_rows: bool = False


class Dialect:
    """The CPU's: `void entry(ptr args, i64 first, i64 last)`, `args` a table of pointers.

    `first` and `last` bound the THREAD range. The work is in an inner function whose pointers are
    noalias: different slots never name memory that overlaps.
    """

    language = "llvm"
    pointer = "ptr"  # type of a pointer to an element of a buffer
    pointer_code = "p0"  # the same in the names of intrinsics
    group_pointer, group_pointer_code = (
        pointer,
        pointer_code,
    )  # into memory of a group of work items
    group_bytes: int | None = None  # of such memory, that a text may define; None: any
    row_part_bytes = (
        0  # of registers of a work item, in which it keeps its part of what a group keeps
    )
    item_pointer, item_pointer_code = (
        pointer,
        pointer_code,
    )  # into memory that an item has to itself
    constant_space = ""  # address space of module constants, as it stands before `constant`
    memory_bytes = (
        1  # of which the address of a buffer is a multiple, which wide loads of a GPU ask for
    )
    has_modifiers = (
        False  # an instruction takes the magnitude, or the opposite, of an operand at no cost
    )
    has_fma = True
    has_prefetch = True
    target = Target("llvm")  # its caches: what is asked for ahead of its use, and what passes them
    gathers = (
        False  # one instruction reads lanes that lie apart, sooner than they are read one by one
    )
    has_vector_masks = False  # comparisons give ones in all bits of a lane (AVX before AVX-512)
    has_avx512 = False  # VRANGE of vectors of any width (AVX-512 DQ and VL)
    has_wide_shifts = True  # the amount of a shift has the bits of what is shifted
    keeps_in_registers = (
        False  # memory that an item has to itself is none: loops that fill it are written out
    )
    copies_ahead = False  # copies into memory of a group go on by themselves
    dot_bits: frozenset[int] = frozenset()  # vectors of int32 of which x86 has the DOT
    word_dots: Mapping[tuple[DType, DType], WordDot] = {}  # x86's, of factors of rows and columns
    has_tiles = False  # registers that hold matrices (AMX)
    functions: Mapping[Ops, str] = {}  # of one float32, that the machine has as instructions
    exchanges = False  # items of a warp read what others of it hold
    loads_matrices = False  # items of a warp read fragments of matrices together, turned around
    has_extremes = False  # the larger and the smaller of two float32, or NaN, are one instruction
    narrows_to_bfloat16 = False  # float32 -> bfloat16 is an instruction
    has_half = True  # float16 <-> float32 are instructions, not calls of a library

    def is_gathered(self, dtype: DType) -> bool:
        """Whether lanes that lie apart are read by one instruction, without a mask too."""
        return self.gathers and dtype.itemsize in GATHERED_BYTES and dtype.lanes >= GATHERED_LANES

    def is_scattered(self, dtype: DType, offsets: Sequence[int] | None) -> bool:
        """Whether they are written so: whole registers, within a page. Beyond it each lane waits for an address of its own."""
        if not self.is_gathered(dtype) or offsets is None:
            return False
        apart = (max(offsets) - min(offsets)) * dtype.itemsize
        is_whole = dtype.lanes % self.target.lanes(dtype.scalar) == 0
        return is_whole and apart < self.target.page_bytes

    def has_masked_access(self, dtype: DType) -> bool:
        """Whether a vector under a mask a lane is loaded and stored by one instruction: by AVX words, by AVX-512 all; else LLVM has a branch a lane."""
        return self.has_avx512 or (self.has_vector_masks and dtype.itemsize >= AVX_MASKED_BYTES)

    def masked_store_cycles(self, dtype: DType) -> float:
        """To store a vector under a mask a lane: where that is no instruction, a branch and a store for each."""
        has_one = self.has_masked_access(dtype)
        return self.target.core.masked_store_cycles if has_one else 2.0 * dtype.lanes

    def open(
        self,
        entry: str,
        slots: Iterable[int],
        stored: frozenset[int],
        needs: GroupNeeds | None = None,
    ) -> list[str]:
        """Lines up to the first instruction; slot k is `%buffer<k>`. `stored`: the slots that are written."""
        params = [f"{self.pointer} noalias nocapture %buffer{slot}" for slot in slots]
        signature = ", ".join([*params, "i64 %first", "i64 %last"])
        return [f"define internal void @{entry}.body({signature}) nounwind {{", "entry:"]

    def close(self, entry: str, slots: Iterable[int]) -> list[str]:
        """Lines after the last `ret void`. LLVM shall not look for more to do in the function that calls the body: the passes that do take
        as long for it as for a short body."""
        signature = f"define void @{entry}(ptr %args, i64 %first, i64 %last)"
        lines = ["}", "", f"{signature} nounwind noinline optnone {{"]
        arguments = []
        for slot in slots:
            lines.append(f"  %position{slot} = getelementptr ptr, ptr %args, i64 {slot}")
            lines.append(f"  %buffer{slot} = load ptr, ptr %position{slot}, align 8")
            arguments.append(f"ptr %buffer{slot}")
        arguments += ["i64 %first", "i64 %last"]
        lines.append(f"  call void @{entry}.body({', '.join(arguments)})")
        return [*lines, "  ret void", "}"]

    def work_item(self, let: Callable[[str], str], is_wide: bool) -> str:
        """The number of the work item, an i64 or i32; `let` adds an instruction and names its value."""
        raise CompileError(f"{self.language} has no work items; its Linear has no GLOBAL range")

    def group(self, let: Callable[[str], str]) -> str:
        """The number of the group of the work item as i32."""
        raise CompileError(f"{self.language} has no work items; its Linear has no BLOCK range")

    def item_of_group(self, let: Callable[[str], str]) -> str:
        """The number of the work item in its group as i32."""
        raise CompileError(f"{self.language} has no work items; its Linear has no LANE range")

    def memory_of_group(self, name: str, array: str) -> str:
        """The definition of memory of a group, of an array type."""
        raise CompileError(f"{self.language} has no work items; nothing is kept by a group of them")

    def memory_from_launch(self, name: str) -> str:
        """The declaration of memory of a group whose size a launch says; for more than `group_bytes`."""
        raise CompileError(f"{self.language} has no work items; nothing is kept by a group of them")

    def wait_for_group(self) -> str:
        """The instruction that waits until each item of a group has come to it."""
        raise CompileError(f"{self.language} has no work items; none waits for others")

    def begin_copy(self, target: str, source: str, nbytes: int, size: str | None) -> str:
        """The instruction that begins to copy into memory of a group; `size`: so many of the bytes, and zeros behind."""
        raise CompileError(f"{self.language} has no copies that go on by themselves")

    def end_copies(self) -> str:
        """The instruction that makes the copies which this item has begun since the last one a group of them."""
        raise CompileError(f"{self.language} has no copies that go on by themselves")

    def wait_for_copies(self, on_their_way: int = 0) -> str:
        """The instruction that waits until all copies of this item have arrived, but for the last groups of them."""
        raise CompileError(f"{self.language} has no copies that go on by themselves")

    def product_of_fragments(
        self,
        let: Callable[[str], str],
        types: tuple[DType, DType],
        before: str,
        column: str,
        rows: Sequence[str],
        steps: int,
    ) -> str:
        """A sum and the product of matrices whose elements the items of a warp hold, of `types`: of factors, of the sum."""
        raise CompileError(f"{self.language} has no matrix units; its Linear has no MMA")

    def word_of_item(self, let: Callable[[str], str], word: str, item: str) -> str:
        """The i32 `word` of another item of the warp, of this number, of which the lowest 5 bits count."""
        raise CompileError(f"{self.language} has no warps; its items read by themselves")

    def word_across(self, let: Callable[[str], str], word: str, bits: int) -> str:
        """The same of the item whose number differs in these bits."""
        raise CompileError(f"{self.language} has no warps; its items read by themselves")

    def load_matrices(self, let: Callable[[str], str], address: str, is_across: bool) -> list[str]:
        """The words that this item gets of four matrices, turned around or not, of which it gives a row's address (matrix_loads.py)."""
        raise CompileError(f"{self.language} has no matrix units; its items read by themselves")
