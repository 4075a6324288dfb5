"""Many launches in one native call: what a recorded function costs is then its kernels.

Owns: the table of launches and of buffer addresses, the loop over them. Does not own: kernels,
threads (threads.py), memory.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from proofgrad.backends.cpu.backend import CpuBackend

# Below this a kernel keeps Python's lock: to give it up and take it again takes a microsecond, whatever the machine.
BRIEF_FLOPS = 50_000
_HEAD = 3  # words before the records: their number, the threads' words, what shares out; so that a call has one argument
_WORDS = 4  # of a record: kernel, table, size, chunk; a chunk of 0: run by the caller alone

REPLAY_IR = """
define void @replay(ptr %head) nounwind {
entry:
  %words_at = getelementptr i64, ptr %head, i64 1
  %share_at = getelementptr i64, ptr %head, i64 2
  %record = getelementptr i64, ptr %head, i64 3
  %count = load i64, ptr %head, align 8
  %words = load ptr, ptr %words_at, align 8
  %share = load ptr, ptr %share_at, align 8
  br label %look
look:
  %k = phi i64 [ 0, %entry ], [ %next, %done ]
  %inside = icmp slt i64 %k, %count
  br i1 %inside, label %body, label %exit
body:
  %at = getelementptr [4 x i64], ptr %record, i64 %k
  %table_at = getelementptr i64, ptr %at, i64 1
  %size_at = getelementptr i64, ptr %at, i64 2
  %chunk_at = getelementptr i64, ptr %at, i64 3
  %kernel = load ptr, ptr %at, align 8
  %table = load ptr, ptr %table_at, align 8
  %size = load i64, ptr %size_at, align 8
  %chunk = load i64, ptr %chunk_at, align 8
  %alone = icmp eq i64 %chunk, 0
  br i1 %alone, label %call, label %shared
call:
  call void %kernel(ptr %table, i64 0, i64 %size)
  br label %done
shared:
  call void %share(ptr %words, ptr %kernel, ptr %table, i64 %size, i64 %chunk)
  br label %done
done:
  %next = add i64 %k, 1
  br label %look
exit:
  ret void
}
"""


class Replay:
    """Launches in order, over buffers whose addresses `point` changes."""

    def __init__(
        self,
        backend: CpuBackend,
        launches: Sequence[tuple[Any, Sequence[int], Sequence[int]]],
        memory: Sequence[Any],
    ) -> None:
        """`launches`: each with the slots of its buffers and the bytes that each begins behind. They are held, and their
        code with them.
        """
        self._threads = backend.threads
        self._launches, self._slots = [launch for launch, _, _ in launches], list(launches)
        self._shares = any(launch.shares for launch in self._launches)
        flat = [slot for _, own, _ in launches for slot in own]
        self._offsets = [offset for _, _, offsets in launches for offset in offsets]
        self._addresses = (ctypes.c_uint64 * max(1, len(flat)))()
        self._positions: dict[int, list[int]] = {}
        for position, slot in enumerate(flat):
            self._positions.setdefault(slot, []).append(position)
        self._records = (ctypes.c_int64 * (_HEAD + _WORDS * len(launches)))(len(launches))
        start, done = ctypes.addressof(self._addresses), 0
        for k, (launch, own, _) in enumerate(launches):
            chunk = self._threads.chunk(launch.size) if launch.shares else 0
            self._records[_of_record(k)] = [*(launch.address, start + 8 * done, launch.size, chunk)]
            done += len(own)
        for slot, block in enumerate(memory):
            if block is not None and slot in self._positions and hasattr(block, "address"):
                self.point(slot, block)
        is_brief = sum([launch.flops for launch in self._launches]) < BRIEF_FLOPS
        kind = ctypes.PYFUNCTYPE if is_brief and not self._shares else ctypes.CFUNCTYPE
        replay = kind(None, ctypes.c_void_p)(backend.replay_library["replay"])
        head = ctypes.c_void_p(ctypes.addressof(self._records))  # converted once
        self._call = functools.partial(replay, head)
        # All launches, in order: asked for once, as a call of a method is a tenth of that of a brief kernel.
        self.run: Callable[[], None] = self._run_shared if self._shares else self._call

    def point(self, slot: int, block: Any) -> None:
        """The buffer of a slot is another one."""
        for position in self._positions.get(slot, ()):
            self._addresses[position] = block.address + self._offsets[position]

    def listed(self) -> list[tuple[Any, list[int]]]:
        """Each launch, and the addresses of its buffers as they stand in the table now."""
        addresses = ctypes.addressof(self._addresses)
        found = []
        for k, (launch, (_, own, _)) in enumerate(zip(self._launches, self._slots)):
            kernel, table, size, _ = self._records[_of_record(k)]
            is_right = (kernel, size) == (launch.address, launch.size)
            first = (table - addresses) // 8
            found.append(
                (launch if is_right else None, list(self._addresses[first : first + len(own)]))
            )
        return found[: self._records[0]]

    def _run_shared(self) -> None:
        threads = self._threads
        with threads as words:
            if words != self._records[1]:  # as they are in a process that was forked off
                self._records[1:_HEAD] = [words, threads.share_address]
            self._call()


def _of_record(number: int) -> slice:
    return slice(_HEAD + _WORDS * number, _HEAD + _WORDS * (number + 1))
