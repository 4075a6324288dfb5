"""How a kernel begins in the LLVM IR for NVIDIA GPUs.

Owns: signature, address spaces, the number of the work item. Does not own: instructions
(backends/llvm), PTX text (emit.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from proofgrad.backends.llvm.dialect import Dialect


class PTXDialect(Dialect):
    """`entry(pointer, pointer, ...)`: a kernel with one pointer to global memory a slot in use."""

    language = "ptx"
    pointer = "ptr addrspace(1)"
    pointer_code = "p1"
    constant_space = "addrspace(1)"
    has_wide_shifts = (
        False  # 32 bits: of a longer amount LLVM drops the rest, whatever it was compared with
    )
    has_prefetch = False  # other threads run while one waits

    def open(self, entry: str, slots: Iterable[int]) -> list[str]:
        """The first lines of a kernel: its signature and the label of its first block."""
        params = ", ".join([f"{self.pointer} noalias %buffer{slot}" for slot in slots])
        return [f"define ptx_kernel void @{entry}({params}) nounwind {{", "entry:"]

    def close(self, entry: str, slots: Iterable[int]) -> list[str]:
        """The last line of a kernel."""
        return ["}"]

    def work_item(self, let: Callable[[str], str], is_wide: bool) -> str:
        """The number of this work item in the whole launch: an i64, or an i32 where that is enough."""
        kind = "i64" if is_wide else "i32"
        group, size, lane = [
            self._special(let, register, is_wide) for register in ("ctaid.x", "ntid.x", "tid.x")
        ]
        first = let(f"mul {kind} {group}, {size}")
        return let(f"add {kind} {first}, {lane}")

    def _special(self, let: Callable[[str], str], register: str, is_wide: bool) -> str:
        number = let(f"call i32 @llvm.nvvm.read.ptx.sreg.{register}()")
        return let(f"zext i32 {number} to i64") if is_wide else number
