"""Threads that share out the THREAD range of a kernel.

Owns: how many threads, the workers, joining and leaving a job, sleeping and forking. Does not own:
which kernels are worth it (backend.py).

The workers are Python threads that stay inside of one native function, without Python's lock. They
spin for a moment after a job and then sleep in the kernel (futex). A job is a function and a count
of items. Each thread has a part of them, the same in each job of so many: what it wrote is in its
cache. It takes an eighth of what its part has left, again and again, so that the last pieces, which
are waited for, are small; then it takes from the parts of the others. The word
`epoch` is odd while a job is open. A worker enters by raising `active` and then looking at `epoch`
again; the caller closes the job and waits until `active` is 0. So a worker that never woke up costs
the caller nothing.

Each worker is kept on a CPU of its own, one is left for the caller, who may be on any: if it is on that of a worker when it opens a
job, the worker is sent to the one that is left. Else both would take turns on one CPU, with another one idle, until Linux moves the caller.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import os
import platform
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proofgrad.backends.cpu.codegen import Host
from proofgrad.core.compile.machine.machine import LINE_BYTES

# Numbers of the system calls `futex` and `sched_setaffinity` (source: the kernel's tables for each machine), and the
# instruction that tells the processor that this is a spinning loop.
_MACHINES = {
    "x86_64": (202, 203, "call void @llvm.x86.sse2.pause()"),
    "aarch64": (98, 122, "call void @llvm.aarch64.hint(i32 1)"),
}
_SPINS = 4000  # about 0.1 to 0.2 ms
_COUNTERS = 384  # where they begin, each on a cache line of its own
_SHARE_OF_REST = 8  # a piece is one of so many of what is left
_PIECES_PER_THREAD = 256  # at most: no piece is smaller than one of these


def available_cpus() -> list[int]:
    """The CPUs that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def thread_count(asked: int = 0) -> int:
    """As many as asked, else as the affinity and the cgroup's quota allow."""
    if asked > 0:
        return asked
    allowed = len(available_cpus())
    quota = _quota(Path("/sys/fs/cgroup/cpu.max"))
    return max(1, allowed if quota is None else min(allowed, quota))


def _quota(path: Path) -> int | None:
    """Whole CPUs that the cgroup may use, rounded up; None: no limit, or none can be read."""
    try:
        limit, period = path.read_text().split()
        return None if limit == "max" else max(1, -(-int(limit) // int(period)))
    except (OSError, ValueError):
        return None


@dataclass(frozen=True, slots=True)
class _Native:
    """The functions of `_POOL_IR`, and the library that they are in."""

    library: Any
    share: Callable[[int, int, int, int, int], None]
    work: Callable[[int, int], None]
    stop: Callable[[int], None]


class ThreadPool:
    """Runs `kernel(table, first, last)` over 0 .. size-1. One job at a time.

    `compile_ir` makes object code; it is not called before the first job.
    """

    def __init__(self, host: Host, count: int, compile_ir: Callable[[str], bytes]) -> None:
        is_known = sys.platform == "linux" and platform.machine() in _MACHINES
        self.count = count if is_known else 1
        self._host, self._compile_ir = host, compile_ir
        self._reset()
        if self.count > 1:
            os.register_at_fork(after_in_child=self._reset)
            atexit.register(self.stop)

    def _reset(self) -> None:
        """No workers: at the beginning, and in a forked child, where threads are gone."""
        self._lock = threading.Lock()
        self._clear()

    def _clear(self) -> None:
        self._workers: list[threading.Thread] = []
        self._cpus = available_cpus()
        known = self._cpus[-1] + 1 if self.count <= len(self._cpus) else 0
        table = _COUNTERS + self.count * LINE_BYTES
        self._area = ctypes.create_string_buffer(table + 4 * known + known // 8 + 8 + LINE_BYTES)
        start = ctypes.addressof(self._area)
        self._words = start + -start % LINE_BYTES
        for at, number in enumerate([self.count, known, self._cpus[0], table]):
            ctypes.c_int64.from_address(self._words + 288 + 8 * at).value = number
        self._worker_on = (ctypes.c_int32 * known).from_address(self._words + table)

    @functools.cached_property
    def _native(self) -> _Native:
        code = self._compile_ir(_pool_ir(*_MACHINES[platform.machine()]))
        library = self._host.link(code, "share", "work", "stop")
        pointer, number = ctypes.c_void_p, ctypes.c_int64
        on_words, working = ctypes.CFUNCTYPE(None, pointer), ctypes.CFUNCTYPE(None, pointer, number)
        sharing = ctypes.CFUNCTYPE(None, pointer, pointer, pointer, number, number)
        return _Native(
            library, sharing(library["share"]), working(library["work"]), on_words(library["stop"])
        )

    def _start(self) -> None:
        for number in range(1, self.count):
            cpu = self._cpus[number] if self.count <= len(self._cpus) else None
            worker = threading.Thread(
                target=self._serve, args=(number, cpu), name=f"proofgrad-{number}", daemon=True
            )
            try:
                worker.start()
            except RuntimeError:  # Python is ending, or may have no more threads
                return  # those that there are do all
            self._workers.append(worker)

    def stop(self) -> None:
        """Send the workers home; the next job starts new ones."""
        with self._lock:
            if self._workers:
                self._native.stop(self._words)
            for worker in self._workers:
                worker.join()
            self._clear()

    def _serve(self, number: int, cpu: int | None) -> None:
        if cpu is not None:
            os.sched_setaffinity(0, {cpu})  # of this thread: a woken worker must not wait for ours
            self._worker_on[cpu] = threading.get_native_id()
        self._native.work(self._words, number)

    def run(self, kernel: int, table: int, size: int) -> None:
        """Call the function at address `kernel` until every item is done."""
        share, chunk = self._native.share, self.chunk(size)
        with self as words:
            share(words, kernel, table, size, chunk)

    def chunk(self, size: int) -> int:
        """Items that a thread takes at once, at least."""
        return max(1, size // (self.count * _PIECES_PER_THREAD))

    def __enter__(self) -> int:
        """Inside, the workers wait for this caller's jobs; gives the address of the words."""
        self._lock.acquire()
        try:
            if not self._workers:
                self._start()
        except BaseException:
            self._lock.release()
            raise
        return self._words

    def __exit__(self, *error: object) -> None:
        self._lock.release()

    @functools.cached_property
    def share_address(self) -> int:
        """The native function `share(words, kernel, table, size, chunk)`."""
        return ctypes.cast(self._native.share, ctypes.c_void_p).value or 0  # type: ignore[arg-type]


def _pool_ir(futex_call: int, affinity_call: int, pause: str) -> str:
    calls = _POOL_IR.replace("FUTEX", str(futex_call)).replace("AFFINITY", str(affinity_call))
    return calls.replace("PAUSE", pause)


# Words, each on a cache line of its own: epoch (i32) at 0, active (i32) at 64, sleepers (i32) at 192; the job
# at 256: kernel, table, size, chunk; then threads, how many CPUs there may be (0: workers are kept on none), the one
# without a worker, and where the CPUs are; stop (i32) at 320; at 384 what is taken of each thread's part; then of each
# CPU the worker that is kept on it (i32, or 0), and a bit, which are 0 but while a worker is sent to one.
_JOB = {"kernel": ("ptr", 256), "table": ("ptr", 264), "size": ("i64", 272), "chunk": ("i64", 280)}
_AT = "  %{0}_at = getelementptr i8, ptr %words, i64 {2}\n"
_LOAD = _AT + "  %{0} = load {1}, ptr %{0}_at, align 8"
_STORE = _AT + "  store {1} %{0}, ptr %{0}_at, align 8"
_LOADS = "\n".join([_LOAD.format(name, *word) for name, word in _JOB.items()])
_STORES = "\n".join([_STORE.format(name, *word) for name, word in _JOB.items()])
_THREADS = _LOAD.format("threads", "i64", 288)
_CPUS = "\n".join(
    [_LOAD.format(name, "i64", 296 + 8 * k) for k, name in enumerate(["known", "left", "table"])]
)
_POOL_IR = f"""
declare i64 @syscall(i64, ...)
declare i32 @sched_getcpu()

define internal void @make_way(ptr %words) nounwind {{
entry:
{_CPUS}
  %here = call i32 @sched_getcpu()
  %cpu = zext i32 %here to i64
  %is_known = icmp ult i64 %cpu, %known
  br i1 %is_known, label %look, label %done
look:
  %workers = getelementptr i8, ptr %words, i64 %table
  %own = getelementptr i32, ptr %workers, i64 %cpu
  %worker = load atomic i32, ptr %own monotonic, align 4
  %is_taken = icmp ne i32 %worker, 0
  br i1 %is_taken, label %move, label %done
move:
  %bits = getelementptr i32, ptr %workers, i64 %known
  %number = lshr i64 %left, 3
  %byte = getelementptr i8, ptr %bits, i64 %number
  %low = trunc i64 %left to i8
  %place = and i8 %low, 7
  %bit = shl i8 1, %place
  store i8 %bit, ptr %byte
  %nbytes = add i64 %number, 8
  %called = call i64 (i64, ...) @syscall(i64 AFFINITY, i32 %worker, i64 %nbytes, ptr %bits)
  store i8 0, ptr %byte
  store i32 0, ptr %own
  %has_moved = icmp eq i64 %called, 0
  br i1 %has_moved, label %settle, label %done
settle:
  %other = getelementptr i32, ptr %workers, i64 %left
  store i32 %worker, ptr %other
  store i64 %cpu, ptr %left_at
  br label %done
done:
  ret void
}}

define internal void @drain(ptr %words, i64 %own) nounwind {{
entry:
{_LOADS}
{_THREADS}
  %counters = getelementptr i8, ptr %words, i64 {_COUNTERS}
  br label %part
part:
  %visited = phi i64 [ 0, %entry ], [ %more, %next ]
  %at = add i64 %own, %visited
  %number = urem i64 %at, %threads
  %after = add i64 %number, 1
  %begins = mul i64 %size, %number
  %begin = udiv i64 %begins, %threads
  %ends = mul i64 %size, %after
  %end = udiv i64 %ends, %threads
  %length = sub i64 %end, %begin
  %offset = shl i64 %number, 6
  %counter = getelementptr i8, ptr %counters, i64 %offset
  %known = load atomic i64, ptr %counter monotonic, align 8
  br label %look
look:
  %taken = phi i64 [ %known, %part ], [ %now, %take ], [ %beyond, %run ]
  %left = sub i64 %length, %taken
  %some = icmp sgt i64 %left, 0
  br i1 %some, label %take, label %next
take:
  %share = udiv i64 %left, {_SHARE_OF_REST}
  %is_small = icmp slt i64 %share, %chunk
  %wanted = select i1 %is_small, i64 %chunk, i64 %share
  %is_over = icmp sgt i64 %wanted, %left
  %piece = select i1 %is_over, i64 %left, i64 %wanted
  %beyond = add i64 %taken, %piece
  %swap = cmpxchg ptr %counter, i64 %taken, i64 %beyond seq_cst seq_cst, align 8
  %now = extractvalue {{ i64, i1 }} %swap, 0
  %mine = extractvalue {{ i64, i1 }} %swap, 1
  br i1 %mine, label %run, label %look
run:
  %first = add i64 %begin, %taken
  %last = add i64 %begin, %beyond
  call void %kernel(ptr %table, i64 %first, i64 %last)
  br label %look
next:
  %more = add i64 %visited, 1
  %others = icmp slt i64 %more, %threads
  br i1 %others, label %part, label %done
done:
  ret void
}}

define void @share(ptr %words, ptr %kernel, ptr %table, i64 %size, i64 %chunk) nounwind {{
entry:
  %active = getelementptr i8, ptr %words, i64 64
  %sleepers = getelementptr i8, ptr %words, i64 192
{_STORES}
{_THREADS}
  call void @make_way(ptr %words)
  %counters = getelementptr i8, ptr %words, i64 {_COUNTERS}
  br label %clear
clear:
  %number = phi i64 [ 0, %entry ], [ %after, %clear ]
  %offset = shl i64 %number, 6
  %counter = getelementptr i8, ptr %counters, i64 %offset
  store atomic i64 0, ptr %counter monotonic, align 8
  %after = add i64 %number, 1
  %more = icmp slt i64 %after, %threads
  br i1 %more, label %clear, label %open
open:
  %opened = atomicrmw add ptr %words, i32 1 seq_cst, align 4
  %asleep = load atomic i32, ptr %sleepers seq_cst, align 4
  %must_wake = icmp sgt i32 %asleep, 0
  br i1 %must_wake, label %wake, label %work
wake:
  %woken = call i64 (i64, ...) @syscall(i64 FUTEX, ptr %words, i64 129, i64 2147483647)
  br label %work
work:
  call void @drain(ptr %words, i64 0)
  %closed = atomicrmw add ptr %words, i32 1 seq_cst, align 4
  br label %wait
wait:
  %inside = load atomic i32, ptr %active seq_cst, align 4
  %busy = icmp ne i32 %inside, 0
  br i1 %busy, label %spin, label %done
spin:
  PAUSE
  br label %wait
done:
  ret void
}}

define void @work(ptr %words, i64 %own) nounwind {{
entry:
  %active = getelementptr i8, ptr %words, i64 64
  %sleepers = getelementptr i8, ptr %words, i64 192
  %stopped = getelementptr i8, ptr %words, i64 320
  br label %look
look:
  %seen = phi i32 [ 0, %entry ], [ %seen, %spin ], [ %epoch, %leave ], [ %seen, %woken ]
  %spins = phi i32 [ 0, %entry ], [ %more, %spin ], [ 0, %leave ], [ 0, %woken ]
  %epoch = load atomic i32, ptr %words seq_cst, align 4
  %stop = load atomic i32, ptr %stopped seq_cst, align 4
  %stay = icmp eq i32 %stop, 0
  br i1 %stay, label %decide, label %done
decide:
  %odd = and i32 %epoch, 1
  %open = icmp eq i32 %odd, 1
  %other = icmp ne i32 %epoch, %seen
  %new = and i1 %open, %other
  br i1 %new, label %enter, label %idle
enter:
  %before = atomicrmw add ptr %active, i32 1 seq_cst, align 4
  %now = load atomic i32, ptr %words seq_cst, align 4
  %still = icmp eq i32 %now, %epoch
  br i1 %still, label %help, label %leave
help:
  call void @drain(ptr %words, i64 %own)
  br label %leave
leave:
  %after = atomicrmw sub ptr %active, i32 1 seq_cst, align 4
  br label %look
idle:
  %tired = icmp sgt i32 %spins, {_SPINS}
  br i1 %tired, label %sleep, label %spin
spin:
  %more = add i32 %spins, 1
  PAUSE
  br label %look
sleep:
  %counted = atomicrmw add ptr %sleepers, i32 1 seq_cst, align 4
  %nap = call i64 (i64, ...) @syscall(i64 FUTEX, ptr %words, i64 128, i32 %epoch, ptr null)
  %uncounted = atomicrmw sub ptr %sleepers, i32 1 seq_cst, align 4
  br label %woken
woken:
  br label %look
done:
  ret void
}}

define void @stop(ptr %words) nounwind {{
entry:
  %stopped = getelementptr i8, ptr %words, i64 320
  store atomic i32 1, ptr %stopped seq_cst, align 4
  %epoch = atomicrmw add ptr %words, i32 2 seq_cst, align 4
  %woken = call i64 (i64, ...) @syscall(i64 FUTEX, ptr %words, i64 129, i64 2147483647)
  ret void
}}
"""
