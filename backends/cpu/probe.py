"""What this machine can do, measured: some seconds of kernels written by hand.

Owns: running and timing them, what the times say. Does not own: the kernels (probe_kernels.py), what is made of the numbers
(calibration.py).

Of each kernel the best of many short runs counts, so that others who use the processor now and then do not matter. A cycle is
a quarter of a multiplication of integers and an `xor` that wait for those before them (A. Fog, Instruction tables: 3 cycles and
1, on Intel and AMD; the same on most ARM cores).
"""

from __future__ import annotations

import ctypes
import math
import random
import time
from collections.abc import Callable
from typing import Any

from proofgrad.backends.cpu import probe_kernels as kernels
from proofgrad.backends.cpu.backend import CpuBackend
from proofgrad.core.compile.machine.machine import LINE_BYTES
from proofgrad.core.compile.machine.target import DeviceError, Source
from proofgrad.core.ir.dtypes import dtypes

SECONDS = 0.15  # for each kernel
FEWEST_RUNS = 3
PASSES_TIMES = 3  # as long for memory, whose passes are long
SUMS = 12  # side by side: so many registers hold them on any machine, and none waits for itself
PARALLEL_STEPS = 20_000
CALLS = 100
NAP_SECONDS = 0.005  # after which threads sleep
NAPS = 20
SLEEPING_SHARE = 0.1  # of the times that threads are asked, they sleep
SMALLEST_CHASE, LARGEST_CHASE = 1 << 14, 1 << 24
# How many times as long as in the cache before a load takes when it is no longer in this one.
BEYOND_FIRST, BEYOND_SECOND = 1.5, 2.0
FILLING = 0x3C  # bytes of which every float is a normal number


class Probe:
    """The kernels on one machine, which is this one. Raises: DeviceError where it is another."""

    def __init__(self, machine: CpuBackend, seconds: float = SECONDS) -> None:
        if not machine.target.runs:
            raise DeviceError(f"{machine.name} does not run here: nothing can be measured")
        self.machine, self.seconds = machine, seconds
        self.memory = [machine.alloc(kernels.BUFFER_BYTES) for _ in range(2)]
        for block in self.memory:  # pages that were never written do not count as memory
            ctypes.memset(block.address, FILLING, kernels.BUFFER_BYTES)
        self.table = (ctypes.c_void_p * 2)(*[block.address for block in self.memory])
        self.lanes, self.is_fused = machine.target.vector_bytes // 4, machine.target.has_fma
        self.cycle = self.alone(kernels.chain()) / kernels.CHAIN_STEPS / kernels.PAIR_CYCLES

    # -- running ------------------------------------------------------------------------------

    def best(self, run: Callable[[], object]) -> float:
        """Seconds of the fastest run."""
        times: list[float] = []
        end = time.perf_counter() + self.seconds
        while time.perf_counter() < end or len(times) < FEWEST_RUNS:
            start = time.perf_counter()
            run()
            times.append(time.perf_counter() - start)
        return min(times)

    def alone(self, ir: str, items: int = 1) -> float:
        """Seconds of a kernel in this thread."""
        call = self._call(ir)
        return self.best(lambda: call(self.table, 0, items))

    def together(self, ir: str, items: int = kernels.ITEMS) -> float:
        """Seconds of a kernel shared out over all threads."""
        library = self._library(ir)
        address, table = int(library["limit"]), ctypes.addressof(self.table)
        return self.best(lambda: self.machine.threads.run(address, table, items))

    def _call(self, ir: str) -> Callable[[Any, int, int], None]:
        """A kernel as a function, which holds its library."""
        library = self._library(ir)
        function: Any = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(
            library["limit"]
        )
        function.library = library
        return function  # type: ignore[no-any-return]

    def _library(self, ir: str) -> Any:
        """Compiled anew: a kernel of the probe is not kept on disk."""
        return self.machine.host.link(self.machine.host.object_code(ir), "limit")

    # -- the core -----------------------------------------------------------------------------

    def multiply_adds(self, dtype: str, lanes: int) -> float:
        """Multiply-adds of whole vectors in a cycle."""
        taken = self.alone(kernels.multiply_adds(dtype, lanes, SUMS, self.is_fused)) / self.cycle
        return kernels.MULTIPLY_ADD_STEPS * SUMS / taken

    def multiply_add_cycles(self) -> float:
        """Until another instruction can use the result."""
        taken = (
            self.alone(kernels.multiply_adds("float32", self.lanes, 1, self.is_fused)) / self.cycle
        )
        return taken / kernels.MULTIPLY_ADD_STEPS

    def loads(self, nbytes: int) -> float:
        """Loads of whole vectors in a cycle, from so much memory again and again."""
        return (
            kernels.VECTORS * kernels.LOADS
            / (self.alone(kernels.loads(self.lanes, nbytes)) / self.cycle)
        )  # fmt: skip

    def gather_cycles(self) -> float:
        """Of an element of a vector whose elements lie apart."""
        taken = self.alone(kernels.gathered(self.lanes)) / self.cycle
        return taken / kernels.VECTORS / self.lanes

    def scatter_cycles(self) -> float:
        """The same, stored."""
        taken = self.alone(kernels.scattered(self.lanes)) / self.cycle
        return taken / kernels.VECTORS / self.lanes

    # -- memory -------------------------------------------------------------------------------

    def memory_bytes_a_cycle(self) -> float:
        """Read by this thread, in order.

        A whole pass takes so long that somebody else has the processor meanwhile: of each piece the best pass counts.
        """
        call, table = self._call(kernels.memory(self.lanes, stores=False)), self.table
        best = [float("inf")] * kernels.ITEMS
        end = time.perf_counter() + PASSES_TIMES * self.seconds
        while time.perf_counter() < end or math.inf in best:
            for item in range(kernels.ITEMS):
                start = time.perf_counter()
                call(table, item, item + 1)
                best[item] = min(best[item], time.perf_counter() - start)
        return kernels.BUFFER_BYTES / (sum(best) / self.cycle)

    def memory_line_cycles(self) -> float:
        """Of a line that nothing foresees, among others under way."""
        ir = kernels.lines_apart(self.machine.target.page_bytes)
        return self.alone(ir) / self.cycle / kernels.LINES

    def load_cycles(self) -> dict[int, float]:
        """Cycles of a load that the next one waits for, by the bytes of memory that loads go around in: half octaves."""
        call = self._call(kernels.pointers())
        sizes = [SMALLEST_CHASE]
        while sizes[-1] < LARGEST_CHASE:
            low = 1 << (sizes[-1].bit_length() - 1)
            sizes.append(low * 3 // 2 if sizes[-1] == low else 2 * low)
        found = {}
        for nbytes in sizes:
            self._make_ring(nbytes)
            for _ in range(0, nbytes // LINE_BYTES, kernels.POINTERS):
                call(self.table, 0, 1)
            taken = self.best(lambda: call(self.table, 0, 1))
            found[nbytes] = taken / self.cycle / kernels.POINTERS
        ctypes.memset(self.memory[1].address, FILLING, LARGEST_CHASE)
        return found

    def _make_ring(self, nbytes: int) -> None:
        """In each line the address of another, in an order that nothing foresees, until all were there."""
        start, count = self.memory[1].address, nbytes // LINE_BYTES
        order = list(range(count))
        random.Random(0).shuffle(order)
        words = (ctypes.c_int64 * (nbytes // 8)).from_address(start)
        apart = LINE_BYTES // 8
        for here, there in zip(order, [*order[1:], order[0]]):
            words[here * apart] = start + there * LINE_BYTES
        ctypes.c_int64.from_address(self.memory[0].address).value = start

    # -- calls and threads --------------------------------------------------------------------

    def launch_cycles(self) -> float:
        """To call a kernel from Python that does nothing."""
        params = (dtypes.float32, dtypes.float32)
        source = Source("llvm", "limit", kernels.nothing(), params, thread_size=1)
        launch = self.machine.load(self.machine.compile(source))

        def run() -> None:
            for _ in range(CALLS):
                launch(self.memory)

        taken = self.best(run)
        return taken / CALLS / self.cycle

    def share_cycles(self) -> tuple[float, float]:
        """To hand out next to nothing: to threads that spin; on average, if they sleep every tenth time."""
        library = self._library(kernels.nothing())
        address, table = int(library["limit"]), ctypes.addressof(self.table)

        def run() -> None:
            self.machine.threads.run(address, table, kernels.ITEMS)

        spinning, times = self.best(run), []
        for _ in range(NAPS):
            time.sleep(NAP_SECONDS)
            start = time.perf_counter()
            run()
            times.append(time.perf_counter() - start)
        waking = sorted(times)[len(times) // 4]
        average = (1 - SLEEPING_SHARE) * spinning + SLEEPING_SHARE * waking
        return spinning / self.cycle, average / self.cycle

    def start_seconds(self) -> float:
        """Until threads that there were none of have done their first job."""
        library = self._library(kernels.nothing())
        address, table = int(library["limit"]), ctypes.addressof(self.table)
        times = []
        for _ in range(5):
            self.machine.threads.stop()
            start = time.perf_counter()
            self.machine.threads.run(address, table, kernels.ITEMS)
            times.append(time.perf_counter() - start)
        return min(times)

    # -- all threads --------------------------------------------------------------------------

    def gflops(self) -> float:
        """Of multiply-adds of float32, two operations each."""
        ir = kernels.multiply_adds("float32", self.lanes, SUMS, self.is_fused, PARALLEL_STEPS)
        return 2e-9 * kernels.ITEMS * PARALLEL_STEPS * SUMS * self.lanes / self.together(ir)

    def copy_gbs(self) -> float:
        """Bytes read and bytes written."""
        taken = self.together(kernels.memory(self.lanes, stores=True))
        return 2e-9 * kernels.BUFFER_BYTES / taken

    def read_gbs(self) -> float:
        """Bytes read."""
        return 1e-9 * kernels.BUFFER_BYTES / self.together(kernels.memory(self.lanes, stores=False))


def ends_of_caches(load_cycles: dict[int, float]) -> tuple[int, int]:
    """Of the first and of the second cache, as the steps in the time of a load say."""
    sizes = sorted(load_cycles)
    first = _end(sizes, load_cycles, BEYOND_FIRST * load_cycles[sizes[0]])
    beyond = [size for size in sizes if size >= 2 * first] or sizes[-1:]
    return first, _end(beyond, load_cycles, BEYOND_SECOND * load_cycles[beyond[0]])


def _end(sizes: list[int], load_cycles: dict[int, float], most: float) -> int:
    """The largest size before the first whose loads take longer."""
    last = sizes[0]
    for size in sizes:
        if load_cycles[size] > most:
            break
        last = size
    return last


def measure(machine: CpuBackend, cache_bytes: int, seconds: float = SECONDS) -> dict[str, float]:
    """Every number by its name; those of `Core` have the names of its fields. Some seconds.

    `cache_bytes`: of the second cache, before anything was measured.
    """
    probe = Probe(machine, seconds)
    target, found = machine.target, {}
    for dtype in ("float32", "float64", *(["float16"] if machine.host.has("avx512fp16") else [])):
        width = 16
        while width <= target.vector_bytes:
            lanes = width // (int(dtype.removeprefix("float")) // 8)
            found[f"{dtype} x {lanes}"] = probe.multiply_adds(dtype, lanes)
            width *= 2
    rate = found[f"float32 x {probe.lanes}"]
    # Wide vectors slow the clock down, and a core begins a whole number of them in a cycle.
    clock = min(1.0, rate / max(1, round(rate)))
    found["multiply_adds_a_cycle"] = rate / clock
    found["multiply_add_cycles"] = probe.multiply_add_cycles() * clock
    found["loads_a_cycle"] = probe.loads(1 << 12) / clock
    from_second = probe.loads(1 << (max(2, cache_bytes // 2).bit_length() - 1))
    found["cache_bytes_a_cycle"] = from_second * target.vector_bytes
    found["memory_bytes_a_cycle"] = probe.memory_bytes_a_cycle()
    found["memory_line_cycles"] = probe.memory_line_cycles()
    found["gather_cycles"] = probe.gather_cycles()
    found["scatter_cycles"] = probe.scatter_cycles()
    found["launch_cycles"] = probe.launch_cycles()
    found["share_cycles"], found["wake_cycles"] = probe.share_cycles()
    load_cycles = probe.load_cycles()
    found |= {f"load of {nbytes >> 10} KB": cycles for nbytes, cycles in load_cycles.items()}
    found["first_cache_bytes"], found["cache_bytes"] = ends_of_caches(load_cycles)
    found["cycle_ns"] = probe.cycle * 1e9
    found["start_us"] = probe.start_seconds() * 1e6
    found["gflops"], found["copy_gbs"] = probe.gflops(), probe.copy_gbs()
    found["read_gbs"] = probe.read_gbs()
    return found
