"""Many launches in one native call: what a recorded function costs is then its kernels.

Owns: the table of launches and of buffer addresses, the loop over them. Does not own: kernels,
threads (threads.py), memory.
"""

from __future__ import annotations

import ctypes
import functools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from proofgrad.backends.cpu.generator import ENTRY
from proofgrad.backends.cpu.parts import Job, in_parts
from proofgrad.backends.llvm.nontemporal import is_stored_past

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

define void @run_parts(ptr %group, i64 %first, i64 %last) nounwind {
entry:
  %record = getelementptr i64, ptr %group, i64 1
  %count = load i64, ptr %group, align 8
  br label %part
part:
  %p = phi i64 [ %first, %entry ], [ %after, %end ]
  %after = add i64 %p, 1
  %is_left = icmp slt i64 %p, %last
  br i1 %is_left, label %look, label %exit
look:
  %k = phi i64 [ 0, %part ], [ %next, %done ]
  %inside = icmp slt i64 %k, %count
  br i1 %inside, label %body, label %end
body:
  %at = getelementptr [4 x i64], ptr %record, i64 %k
  %table_at = getelementptr i64, ptr %at, i64 1
  %size_at = getelementptr i64, ptr %at, i64 2
  %own_at = getelementptr i64, ptr %at, i64 3
  %kernel = load ptr, ptr %at, align 8
  %table = load ptr, ptr %table_at, align 8
  %size = load i64, ptr %size_at, align 8
  %own = load i64, ptr %own_at, align 8
  %begin = mul i64 %own, %p
  %behind = mul i64 %own, %after
  %is_cut = icmp slt i64 %size, %behind
  %stop = select i1 %is_cut, i64 %size, i64 %behind
  %some = icmp slt i64 %begin, %stop
  br i1 %some, label %call, label %done
call:
  call void %kernel(ptr %table, i64 %begin, i64 %stop)
  br label %done
done:
  %next = add i64 %k, 1
  br label %look
end:
  br label %part
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
        self._run_parts = backend.replay_library["run_parts"]
        self._groups: dict[int, Any] = {}  # by their addresses
        self._libraries: dict[int, Any] = {}  # of launches that store past no cache here
        jobs = self._grouped(backend, self._in_caches(backend, self._jobs(memory)))
        self._records = (ctypes.c_int64 * (_HEAD + _WORDS * len(jobs)))(len(jobs))
        for k, job in enumerate(jobs):
            chunk = self._threads.chunk(job.size) if job.is_shared else 0
            self._records[_of_record(k)] = [job.address, job.table, job.size, chunk]
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

    def _jobs(self, memory: Sequence[Any]) -> list[Job]:
        """The launches, each with a table of its own."""
        jobs, start = [], ctypes.addressof(self._addresses)
        for launch, slots, offsets in self._slots:
            pieces: dict[Any, int] = {}
            for slot, offset, piece in zip(
                slots, offsets, launch.source.own_bytes or (0,) * len(slots)
            ):
                key = getattr(memory[slot], "address", -1 - slot)  # slots may share memory
                is_known = offset == 0 and pieces.get(key, piece) == piece
                pieces[key] = piece if is_known else 0
            written = frozenset([getattr(memory[slots[0]], "address", -1 - slots[0])])
            jobs.append(Job(launch.address, start, launch.size, pieces, written, launch.shares))
            start += 8 * len(slots)
        return jobs

    def _grouped(self, backend: CpuBackend, jobs: list[Job]) -> list[Job]:
        """Parts that stay in the first cache, and parts of those that stay in the second."""
        for room in (backend.target.first_cache.nbytes, backend.target.cache_bytes):
            jobs = in_parts(jobs, room, self._threads.count, self._group_of)
        return jobs

    def _in_caches(self, backend: CpuBackend, jobs: list[Job]) -> list[Job]:
        """The jobs; those by which another one of a part finds what they store in a cache do not store it past that."""
        past = {k for k, one in enumerate(self._launches) if is_stored_past(one.source.text)}
        number = {job.table: k for k, job in enumerate(jobs)}
        for entry in self._grouped(backend, jobs) if past else ():
            inside = [number[table] for _, table, _ in self._leaves(entry.address, entry.table, 1)]
            uses = Counter([memory for k in inside for memory in jobs[k].pieces])
            for k in past.intersection(inside):
                if max([uses[memory] for memory in jobs[k].written]) > 1:
                    source = self._launches[k].source
                    self._libraries[k] = library = backend.in_caches(source)
                    jobs[k] = replace(jobs[k], address=library[ENTRY])
        return jobs

    def _group_of(self, jobs: Sequence[tuple[Job, int]]) -> tuple[int, int]:
        """What runs jobs part by part, and its words: how many jobs, then of each what runs it, its table, its size, and that of a part."""
        records = [word for job, own in jobs for word in (job.address, job.table, job.size, own)]
        words = (ctypes.c_int64 * (1 + len(records)))(len(jobs), *records)
        address = ctypes.addressof(words)
        self._groups[address] = words
        return self._run_parts, address

    def listed(self) -> list[tuple[Any, list[int]]]:
        """Each launch, and the addresses of its buffers as they stand in the table now."""
        addresses = ctypes.addressof(self._addresses)
        found = []
        records = [self._records[_of_record(k)][:3] for k in range(self._records[0])]
        leaves = [leaf for record in records for leaf in self._leaves(*record)]
        for number, (kernel, table, size) in enumerate(leaves):
            launch, own, _ = self._slots[number]
            code = self._libraries.get(number, {ENTRY: launch.address})
            is_right = (kernel, size) == (code[ENTRY], launch.size)
            first = (table - addresses) // 8
            found.append(
                (launch if is_right else None, list(self._addresses[first : first + len(own)]))
            )
        return found

    def _leaves(self, address: int, table: int, size: int) -> list[tuple[int, int, int]]:
        """The kernels of a record, each with its table and its size."""
        if table not in self._groups:
            return [(address, table, size)]
        words = self._groups[table]
        records = [words[k : k + 3] for k in range(1, 1 + _WORDS * words[0], _WORDS)]
        return [leaf for record in records for leaf in self._leaves(*record)]

    def _run_shared(self) -> None:
        threads = self._threads
        with threads as words:
            if words != self._records[1]:  # as they are in a process that was forked off
                self._records[1:_HEAD] = [words, threads.share_address]
            self._call()


def _of_record(number: int) -> slice:
    return slice(_HEAD + _WORDS * number, _HEAD + _WORDS * (number + 1))
