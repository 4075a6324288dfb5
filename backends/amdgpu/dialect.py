"""How a kernel begins in the LLVM IR for AMD GPUs.

Owns: signature, address spaces, the number of the work item. Does not own: instructions (backends/llvm), the machine's text
(emit.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from proofgrad.backends.llvm.dialect import Dialect, GroupNeeds

BLOCK_SIZE = 256  # work items of a group, where none waits for others


class AMDDialect(Dialect):
    """`entry(pointer, pointer, ...)`: a kernel with one pointer to global memory a slot in use."""

    language = "amdgpu"
    pointer = "ptr addrspace(1)"
    pointer_code = "p1"
    constant_space = "addrspace(1)"
    group_pointer, group_pointer_code = "ptr addrspace(3)", "p3"
    memory_bytes = 16
    has_prefetch = False

    def open(
        self,
        entry: str,
        slots: Iterable[int],
        stored: frozenset[int],
        needs: GroupNeeds | None = None,
    ) -> list[str]:
        """The first lines of a kernel. Denormal numbers are kept, and products are not contracted with sums."""
        attributes = f"noalias align {self.memory_bytes}"
        arguments = [
            f"{self.pointer} {attributes} {'' if slot in stored else 'readonly '}%buffer{slot}"
            for slot in slots
        ]
        modes = '"denormal-fp-math"="ieee,ieee" "denormal-fp-math-f32"="ieee,ieee"'
        sizes = f'"amdgpu-flat-work-group-size"="1,{BLOCK_SIZE}"'
        params = ", ".join(arguments)
        return [
            f"define amdgpu_kernel void @{entry}({params}) nounwind {modes} {sizes} {{",
            "entry:",
        ]

    def close(self, entry: str, slots: Iterable[int]) -> list[str]:
        """The last line of a kernel."""
        return ["}"]

    def work_item(self, let: Callable[[str], str], is_wide: bool) -> str:
        """The number of this work item in the whole launch: an i64, or an i32 where that is enough."""
        kind = "i64" if is_wide else "i32"
        group, item = self.group(let), self.item_of_group(let)
        if is_wide:
            group, item = [let(f"zext i32 {number} to i64") for number in (group, item)]
        return let(f"add {kind} {let(f'mul {kind} {group}, {BLOCK_SIZE}')}, {item}")

    def group(self, let: Callable[[str], str]) -> str:
        """The number of the group of this item."""
        return let("call i32 @llvm.amdgcn.workgroup.id.x()")

    def item_of_group(self, let: Callable[[str], str]) -> str:
        """The number of this item in its group."""
        return let("call i32 @llvm.amdgcn.workitem.id.x()")

    def memory_of_group(self, name: str, array: str) -> str:
        """Local memory of a group."""
        return f"{name} = internal addrspace(3) global {array} undef, align 16"

    def wait_for_group(self) -> str:
        """A barrier, and before and after it what was stored is seen by the group."""
        return (
            'fence syncscope("workgroup") release\n  call void @llvm.amdgcn.s.barrier()\n'
            '  fence syncscope("workgroup") acquire'
        )
