"""What PTX kernels need and move, and how near to its roofs an H200 could run them: read from the text, without a GPU.

    python benchmarks/ptx_kernels.py [product softmax ...]

Owns: the kernels that are read, how the table is made. With `ptxas` (CUDA's toolkit, or pip install nvidia-cuda-nvcc) it has
registers and spills. The estimate is the longest of seven times: multiply-adds as fast as what computes them issues them, instructions
in the loops around these (issued.py), of them those of the unit for functions, turns at the banks of shared memory (shared_banks.py), bytes that items ask for at the speed of
the first caches, those of them that go past these at the speed of the second cache, bytes that are there at the speed of memory. All
but the last two are those of the unit that has the most groups. It is an upper bound: nothing waits, nothing is fetched from memory
twice, first caches have what is asked for again, and instructions elsewhere are free. Where items of a warp ask for the same bytes the
fourth is too long.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path

from issued import issued
from shared_banks import turns

from proofgrad import Context, Device, Tensor
from proofgrad.backends.llvm.copies import copies_of
from proofgrad.backends.llvm.held import held_in_registers
from proofgrad.backends.llvm.matrix_loads import Together, loads_together
from proofgrad.backends.llvm.written_out import filled_ahead, turns_written_out
from proofgrad.backends.ptx.dialect import PTXDialect
from proofgrad.backends.ptx.matrix_units import matrix_units
from proofgrad.backends.ptx.runtime import BLOCK_SIZE, PTXBackend
from proofgrad.core.compile.fusion import row_products
from proofgrad.core.compile.lowering.program_facts import group_size
from proofgrad.core.compile.machine.target import Source
from proofgrad.core.compile.nests.loops import is_fixed, size_of
from proofgrad.core.compile.nests.strides import at_start, loops_of
from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.fragments import QUARTERS, WARP
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import AxisRole, UOp, is_of_group
from proofgrad.core.tensor.runtime.realize import compile_only

ARCHITECTURE, NAME = 90, "SM90"
# Source: NVIDIA H200 data sheet (SXM): 67 TFLOPS of float32 and, by matrix units, of float64; 989.5 of float16 and bfloat16
# by matrix units, 1979 of int8; 4.8 TB/s; 132 units. Each begins 4 instructions of warps a cycle, goes to shared memory once, and has
# 128 bytes from its first cache. Source: CUDA C++ Programming Guide, "Compute Capability 9.0".
MEMORY, MULTIPROCESSORS, SCHEDULERS, FIRST_CACHE = 4.8e12, 132, 4, 128
# Functions that a unit of their own computes, 16 items of a unit a cycle. Source: the same, "Arithmetic Instructions", throughput.
FUNCTIONS, OF_FUNCTIONS = r"ex2\.|lg2\.|rcp\.|rsqrt\.|sin\.|cos\.|tanh\.", 16
# What the second cache of an H100 gives. Source: OpenXLA, gpu_dot_fusion_cost_model.cc, "Measured H100 L2 bandwidth".
# Copies of 16 bytes go past the first one. Source: PTX ISA, "cp.async", .cg.
SECOND_CACHE, PAST_FIRST = 6.65e12, 16


@dataclass(frozen=True, slots=True)
class Rate:
    """Operations a second at the peak, multiply-adds of a unit in a cycle at this peak, and the part of it that can be issued.

    All times of a unit are counted in the cycles of the clock at which the peak is stated: 1.98 GHz, or 1.83 where matrix units multiply.
    """

    peak: float
    of_cycle: int
    part: float = 1.0

    @property
    def cycles(self) -> float:
        """Of a unit in a second."""
        return self.peak / (2 * self.of_cycle * MULTIPROCESSORS)


# Of mma.sync. wgmma, which is not used here, has the peak. Source: Luo et al., "Benchmarking and Dissecting the Nvidia Hopper GPU
# Architecture via Microbenchmarking" (arXiv 2402.13499): mma reaches 62.9 % of the peak on average; float64 has no wgmma.
WARPS = 0.629
FLOAT32 = Rate(66.9e12, 128)
UNITS = {
    dtypes.float16: Rate(989.5e12, 2048, WARPS), dtypes.bfloat16: Rate(989.5e12, 2048, WARPS), dtypes.float64: Rate(66.9e12, 128),
    dtypes.float32: Rate(494.7e12, 1024, WARPS),  # rounded to TF32
    dtypes.int8: Rate(1979e12, 4096, WARPS), dtypes.uint8: Rate(1979e12, 4096, WARPS),
}  # fmt: skip


class Printer(PTXBackend):
    """Prints for sm_90, and keeps what it printed."""

    def __init__(self) -> None:
        super().__init__(None, "nothing is run here")
        self.architecture, self.printed = ARCHITECTURE, []
        units = matrix_units(ARCHITECTURE)
        self.target = replace(
            self.target, matrix_units=units, native=frozenset({Ops.TF32}), copies_ahead=True
        )

    def emit(self, linear: UOp, name: str) -> Source:
        source = super().emit(linear, name)
        self.printed.append(source)
        return source


@dataclass(slots=True)
class Work:
    """What all items of a kernel do."""

    multiply_adds: int = 0
    rate: Rate = FLOAT32  # of what multiplies and adds
    issued: int = 0  # instructions of warps in the loops around these
    functions: int = 0  # of these, those of the unit for functions
    groups: int = 1
    turns: int = 0  # of warps at the banks of shared memory
    conflicts: int = 0  # of these, those that banks in turn cost
    shared: int = 0  # instructions of the text that go there
    asked: int = 0  # bytes of global memory that items load and store
    past: int = 0  # of these, those that no first cache has
    there: int = 0  # bytes of the buffers, of one that is read and written both


@dataclass(slots=True)
class Needs:
    """What ptxas says."""

    registers: str = "-"
    spills: str = "-"
    shared: str = "-"


APART = "each product by itself"  # of attention
FAST = "with instructions for powers, in one pass"  # FASTMATH=real TRANSCENDENTAL=0, as torch computes it
KERNELS: dict[str, Callable[[], Tensor]] = {
    "product 4096": lambda: ones(4096, 4096) @ ones(4096, 4096),
    "product 1024": lambda: ones(1024, 1024) @ ones(1024, 1024),
    "product 4096 bf16": lambda: ones(4096, 4096, "bfloat16") @ ones(4096, 4096, "bfloat16"),
    "product 4096 bf16, transposed": lambda: ones(4096, 4096, "bfloat16") @ ones(4096, 4096, "bfloat16").T,
    "product 4095 bf16": lambda: ones(4095, 4095, "bfloat16") @ ones(4095, 4095, "bfloat16"),
    "product 4096 tf32": lambda: in_tf32(lambda: ones(4096, 4096) @ ones(4096, 4096)),
    "product 4096 tf32, transposed": lambda: in_tf32(lambda: ones(4096, 4096) @ ones(4096, 4096).T),
    "convolution 64 64 58 3 tf32": lambda: in_tf32(
        lambda: ones(16, 64, 58, 58).conv2d(ones(64, 64, 3, 3))
    ),
    "product 4096 int8": lambda: ones(4096, 4096, "int8").matmul(ones(4096, 4096, "int8"), dtype="int32"),
    "product 2048 f64": lambda: ones(2048, 2048, "float64") @ ones(2048, 2048, "float64"),
    "product 1024 bf16": lambda: ones(1024, 1024, "bfloat16") @ ones(1024, 1024, "bfloat16"),
    "convolution 64 64 56 3": lambda: ones(16, 64, 56, 56).conv2d(ones(64, 64, 3, 3), padding=1),
    "convolution 64 64 58 3 bf16": lambda: ones(16, 64, 58, 58, "bfloat16").conv2d(
        ones(64, 64, 3, 3, "bfloat16")
    ),
    "softmax 4096 4096": lambda: ones(4096, 4096).softmax(),
    "softmax 4096 997": lambda: ones(4096, 997).softmax(),
    "softmax 262144 64": lambda: ones(1 << 18, 64).softmax(),
    "layernorm 4096 4096": lambda: ones(4096, 4096).layernorm(),
    "layernorm 4096 4096 bf16": lambda: ones(4096, 4096, "bfloat16").layernorm(),
    "logsumexp 4096 4096": lambda: ones(4096, 4096).logsumexp(1),
    "argmax 4096 4096": lambda: ones(4096, 4096).argmax(1),
    "sum 16M": lambda: ones(4096, 4096).sum(),
    "maximum of a prime number": lambda: ones(16_777_259).max(),
    "column sums 4096": lambda: ones(4096, 4096).sum(0),
    "row sums 4096": lambda: ones(4096, 4096).sum(1),
    "transpose 4096": lambda: ones(4096, 4096).T.contiguous(),
    "permute 64 64 64 64": lambda: ones(64, 64, 64, 64).permute(0, 3, 2, 1).contiguous(),
    "x * 2 + 1, 16M": lambda: ones(4096, 4096) * 2 + 1,
    "attention 8 512 64": lambda: ones(8, 512, 64).scaled_dot_product_attention(
        ones(8, 512, 64), ones(8, 512, 64)
    ),
    "attention 8 4096 64": lambda: attention(8, 4096, 64, "float32"),
    "attention 8 4096 64 bf16": lambda: attention(8, 4096, 64, "bfloat16"),
    "attention 8 4096 64 bf16, causal": lambda: attention(8, 4096, 64, "bfloat16", is_causal=True),
    "attention 8 4096 64 tf32": lambda: in_tf32(lambda: attention(8, 4096, 64, "float32")),
    f"attention 8 4096 64 bf16, {APART}": lambda: attention(8, 4096, 64, "bfloat16"),
    "attention 8 4096 128 bf16": lambda: attention(8, 4096, 128, "bfloat16"),
    f"attention 8 4096 64 bf16, {FAST}": lambda: attention(8, 4096, 64, "bfloat16"),
    f"attention 8 4096 64 tf32, {FAST}": lambda: in_tf32(lambda: attention(8, 4096, 64, "float32")),
    f"attention 8 4096 128 bf16, {FAST}": lambda: attention(8, 4096, 128, "bfloat16"),
    f"attention 8 1000 80 f16, {FAST}": lambda: attention(8, 1000, 80, "float16"),
    "attention 8 1000 80 f16": lambda: attention(8, 1000, 80, "float16"),
    "attention 8 1024 64 f64": lambda: attention(8, 1024, 64, "float64"),
}  # fmt: skip
COUNTED = {
    "ld.16": r"\bld\.global(?:\.\w+)*\.v4\.(?:b|u|s|f)32|\bld\.global(?:\.\w+)*\.v2\.(?:b|u|s|f)64",
    "ld": r"\bld\.global",
    "nc": r"\bld\.global\.nc",
    "cp": r"\bcp\.async\.c",
    "bar": r"\bbar\.sync|\bbarrier",
    "shfl": r"\bshfl\.sync",
    "mma": r"\bmma\.sync",
}


def ones(*shape: int | str) -> Tensor:
    """Memory on the machine, of a type if one is named last."""
    *sizes, dtype = shape if isinstance(shape[-1], str) else (*shape, "float32")
    made = Tensor.ones(*[int(n) for n in sizes], dtype=str(dtype), device=NAME)
    return made.contiguous().realize()  # which launches nothing


def in_tf32(make: Callable[[], Tensor]) -> Tensor:
    """With factors rounded for matrix units."""
    with Context(ALLOW_TF32=1):
        return make()


def attention(*shape: int | str, is_causal: bool = False) -> Tensor:
    """Of queries, keys and values of a shape and type."""
    q, k, v = [ones(*shape) for _ in range(3)]
    return q.scaled_dot_product_attention(k, v, is_causal=is_causal)


def work_of(source: Source) -> Work:
    """Counted from the kernel as a list of instructions."""
    assert source.program is not None
    work, times, shared, moved = Work(), [1], list[UOp](), set[tuple[UOp, Ops]]()
    of_group = {
        n.src[0].src[0].src[0]
        for n in source.program.src
        if n.op is Ops.FILLED and is_of_group(n.src[1:])
    }
    program, texts = source.program, [1]  # how often the text has what is in the open loops
    held = held_in_registers(program, PTXDialect.row_part_bytes)
    copied = copies_of(program, held)
    written_out = turns_written_out(program, group_size(program), frozenset(copied.values()))
    parts = [ahead.parts for ahead in filled_ahead(program).values()]
    kept = frozenset([n for n in program.src if n.op is Ops.FILLED])
    written_whole = frozenset().union(*[part.loops for part in held.values()])
    rows = loads_together(program, kept, source.group_size)
    # Accesses of shared memory since the last loop began or ended; of these what a loop that is written out for registers leaves as it is.
    together, still = dict[UOp, list[UOp]](), dict[UOp, list[UOp]]()
    around = list[UOp]()
    for node in program.src:
        if node.op in (Ops.RANGE, Ops.END):
            again = prod([size_of(x) for x in around if x in written_whole])
            _at_banks(work, times[-1], texts[-1], together, rows)
            _at_banks(work, times[-1] // again, texts[-1], still, rows)
            around.append(node) if node.op is Ops.RANGE else around.remove(node.src[0])
        match node.op:
            case Ops.RANGE:
                size = mean_iterations(node)
                texts.append(texts[-1] * (size if node in written_out or node in parts else 1))
                if node.arg[1] is AxisRole.AHEAD:
                    size = 1  # one part in an iteration, but for the first
                if node.arg[1] is AxisRole.LANE:
                    if shared:  # the items that are there already take turns
                        size = max(1, size // int(shared[0].src[0].arg))
                    shared.append(node)
                times.append(times[-1] * size)
            case Ops.END:
                shared = [loop for loop in shared if loop is not node.src[0]]
                times.pop()
                texts.pop()
            case Ops.MMA:
                work.multiply_adds += times[-1] * node.dtype.lanes * QUARTERS * node.arg[1]
                work.rate = UNITS[node.src[2].dtype.scalar]
            case Ops.MULACC:
                work.multiply_adds += times[-1] * node.dtype.lanes
            case Ops.LOAD | Ops.STORE:
                value = node if node.op is Ops.LOAD else node.src[1]
                memory, moving = node.src[0].src[0], loops_of(node.src[0])
                again = [x for x in around if x in written_whole and x not in moving]
                if memory.op is not Ops.PARAM:
                    place = memory.src[0].src[0].src[0] if memory.op is Ops.FILLED else memory
                    if shared and place in of_group and place not in held:
                        (still if again else together).setdefault(memory, []).append(node)
                else:
                    count = times[-1] // prod([size_of(x) for x in again])
                    nbytes = value.dtype.lanes * value.dtype.scalar.itemsize
                    work.asked += count * nbytes
                    work.past += count * nbytes if node in copied and nbytes == PAST_FIRST else 0
                    moved.add((memory, node.op))
    work.groups = -(-(source.global_size or 1) // (source.group_size or BLOCK_SIZE))
    work.there = sum([memory.arg[1] * memory.dtype.itemsize for memory, _ in moved])
    work.issued = issued(source.text, work.multiply_adds)
    work.functions = issued(source.text, work.multiply_adds, FUNCTIONS)
    return work


def mean_iterations(loop: UOp) -> int:
    """How often a loop runs; of one that the loop of groups ends, on average."""
    if is_fixed(loop):
        return size_of(loop)
    (groups,) = loops_of(loop.src[0])
    counts = [at_start(loop.src[0], {groups: k}) for k in range(size_of(groups))]
    return round(sum(counts) / len(counts))


def _at_banks(
    work: Work, times: int, texts: int, together: dict[UOp, list[UOp]], rows: dict[UOp, Together]
) -> None:
    """Count what is made together so many times, and stands in the text so often, and begin anew."""
    for accesses in together.values():
        count, least, instructions = turns(accesses, rows)
        work.turns += times * count // WARP
        work.conflicts += times * (count - least) // WARP
        work.shared += texts * instructions
    together.clear()


def assembled(source: Source) -> Needs:
    """Registers, spills and shared memory, where there is ptxas."""
    found = ptxas()
    if found is None:
        return Needs()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.ptx"
        path.write_text(source.text)
        command = [found, "-v", f"-arch=sm_{ARCHITECTURE}", str(path), "-o", f"{path}.cubin"]
        told = subprocess.run(command, capture_output=True, text=True, check=True).stderr

    def number(pattern: str) -> str:
        match = re.search(pattern, told)
        return match[1] if match else "0"

    spilled = int(number(r"(\d+) bytes spill stores")) + int(number(r"(\d+) bytes spill loads"))
    shared = int(number(r"(\d+) bytes smem")) + source.group_bytes  # of the text, and of the launch
    return Needs(number(r"Used (\d+) registers"), str(spilled), str(shared))


def ptxas() -> str | None:
    """On the path, or from NVIDIA's wheel."""
    wheels = Path(sys.prefix).glob("lib/python*/site-packages/nvidia/*/bin/ptxas")
    return shutil.which("ptxas") or next(map(str, wheels), None)


def seconds_of(work: Work) -> tuple[float, str]:
    """The longest of the seven, and which it is."""
    rate, most = work.rate, -(-work.groups // MULTIPROCESSORS)
    cycles = (
        rate.cycles * work.groups / most
    )  # of the groups, by those of the unit that has the most
    times = {
        "multiply-adds": work.multiply_adds / (rate.of_cycle * rate.part * cycles),
        "instructions": work.issued / (SCHEDULERS * cycles),
        "functions": work.functions * WARP / (OF_FUNCTIONS * cycles),
        "shared memory": work.turns / cycles,
        "first caches": work.asked / (FIRST_CACHE * cycles),
        "second cache": work.past / SECOND_CACHE,
        "memory": work.there / MEMORY,
    }
    bound = max(times, key=lambda name: times[name])
    return times[bound], bound


def row(kernel: str, source: Source) -> str:
    """One line of the table."""
    work, needs = work_of(source), assembled(source)
    counts = {name: len(re.findall(pattern, source.text)) for name, pattern in COUNTED.items()}
    seconds, bound = seconds_of(work)
    peak = 2 * work.multiply_adds / seconds / work.rate.peak
    speed = work.there / seconds / MEMORY
    cells = [
        kernel, f"`{source.entry}`", needs.registers, needs.spills, needs.shared,
        f"{counts['ld.16']} of {counts['ld']}", counts["nc"], counts["cp"], counts["bar"], counts["shfl"], counts["mma"],
        f"{work.conflicts / max(1, work.turns):.0%}", f"{work.multiply_adds / max(1, work.asked):.2f}", f"{work.asked / work.there:.2f}",
        f"{seconds * 1e6:.1f}", bound, f"{peak:.0%}", f"{speed:.0%}",
    ]  # fmt: skip
    return f"| {' | '.join(map(str, cells))} |"


@contextmanager
def each_product_by_itself() -> Iterator[None]:
    """Scores go through memory, as those that stay in a cache do."""
    decides = row_products.leave_the_cache
    row_products.leave_the_cache = lambda scores, target: False
    try:
        yield
    finally:
        row_products.leave_the_cache = decides


@contextmanager
def printer() -> Iterator[Printer]:
    """A device that prints, under a name of its own."""
    machine = Printer()
    Device._devices[NAME] = machine
    try:
        yield machine
    finally:
        Device._devices.pop(NAME, None)


def main(only: list[str]) -> None:
    """Print the table; `only`: the kernels whose names begin so, or all."""
    print(
        f"sm_{ARCHITECTURE}, ptxas: {ptxas() or 'not found'}; an estimate for an H200, nothing is run"
    )
    print(
        "| what | kernel | registers | spilled bytes | shared bytes | 16-byte loads | nc | cp.async | barriers | shuffles | mma |"
        " bank conflicts | multiply-adds a byte asked for | times that a byte is asked for | us at least | bound | of peak | of memory speed |"
    )
    print("|---" * 18 + "|")
    with printer() as machine:
        for kernel, make in KERNELS.items():
            if only and not kernel.startswith(tuple(only)):
                continue
            result = make()
            machine.printed.clear()
            laws = Context(FASTMATH="real", TRANSCENDENTAL=0) if FAST in kernel else nullcontext()
            apart = each_product_by_itself() if APART in kernel else nullcontext()
            with compile_only(), laws, apart:
                result.realize()
            for source in machine.printed:
                print(row(kernel, source), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
