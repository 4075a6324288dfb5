"""The lines of a function in the making: names of values, blocks, intrinsics, module constants.

Owns: the text of one module while it grows. Does not own: what is written (arithmetic.py,
conversions.py, emit.py).
"""

from __future__ import annotations

from collections.abc import Sequence

from proofgrad.backends.llvm.dialect import Dialect
from proofgrad.backends.llvm.text import register_type, type_code
from proofgrad.core.ir.dtypes import DType


class Writer:
    """Adds lines one by one; `block` is the label of the block that is being filled."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self.lines: list[str] = []
        self.block = "entry"
        self.zero_bytes = 0  # bytes of zeros that masked loads may read instead of the buffer
        self._counts: dict[str, int] = {}
        self._words: dict[str, str] = {}  # of masks of lanes

    def fresh(self, hint: str) -> str:
        """A new name without `%`: hint0, hint1, ..."""
        count = self._counts.get(hint, 0)
        self._counts[hint] = count + 1
        return f"{hint}{count}"

    def do(self, text: str) -> None:
        """Add an instruction that has no result, or whose result is named in `text`."""
        self.lines.append(f"  {text}")

    def let(self, text: str, hint: str = "v") -> str:
        """Add `%hint<k> = text`; the name."""
        name = f"%{self.fresh(hint)}"
        self.do(f"{name} = {text}")
        return name

    def call(self, intrinsic: str, dtype: DType, operands: Sequence[str]) -> str:
        """`llvm.<intrinsic>` of operands and result all of the type `dtype`."""
        llvm_type = register_type(dtype)
        arguments = ", ".join([f"{llvm_type} {operand}" for operand in operands])
        return self.let(f"call {llvm_type} @llvm.{intrinsic}.{type_code(llvm_type)}({arguments})")

    def select(
        self, condition: str, dtype: DType, if_true: str, if_false: str, is_whole: bool = False
    ) -> str:
        """Choice by a condition that has the lanes of `dtype`; `is_whole`: by one for all of them."""
        flag = "i1" if is_whole or dtype.lanes == 1 else f"<{dtype.lanes} x i1>"
        llvm_type = register_type(dtype)
        return self.let(f"select {flag} {condition}, {llvm_type} {if_true}, {llvm_type} {if_false}")

    def begin_block(self, label: str) -> None:
        """Add a label; what is written from now on belongs to its block."""
        self.lines.append(f"{label}:")
        self.block = label

    def reserve(self) -> int:
        """A line to be filled in later by `fill`."""
        self.lines.append("")
        return len(self.lines) - 1

    def fill(self, line: int, text: str) -> None:
        """Write an instruction over the line `line`, which was left empty for it."""
        self.lines[line] = f"  {text}"

    def splat(self, scalar: str, dtype: DType) -> str:
        """The register `scalar` in every lane of the vector type `dtype`."""
        vector, element = register_type(dtype), register_type(dtype.scalar)
        first = self.let(f"insertelement {vector} poison, {element} {scalar}, i64 0")
        order = f"<{dtype.lanes} x i32> zeroinitializer"
        return self.let(f"shufflevector {vector} {first}, {vector} poison, {order}")

    def widen(self, mask: str, lanes: int) -> None:
        """Keep a mask of lanes as words, too: LLVM has truths in halves of words from one block to the next, and widens them at each use."""
        self._words[mask] = self.let(f"sext <{lanes} x i1> {mask} to <{lanes} x i32>")

    def truths(self, mask: str, lanes: int) -> str:
        """A mask of lanes for an access: the signs of its words, if it has any, which the instruction reads as they are."""
        if (words := self._words.get(mask)) is None:
            return mask
        return self.let(f"icmp slt <{lanes} x i32> {words}, zeroinitializer")

    def lane(self, vector: str, dtype: DType, number: int) -> str:
        """Lane `number` of a vector of type `dtype`."""
        return self.let(f"extractelement {register_type(dtype)} {vector}, i64 {number}")
