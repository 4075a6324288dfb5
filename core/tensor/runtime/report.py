"""What DEBUG=1 and DEBUG=2 print: a line for each run, and a line for each kernel and copy.

Owns: those lines, one for each recording, their colours. Does not own: sources and graphs of stages (core/compile).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from proofgrad.core import settings
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import AxisRole
from proofgrad.core.messages import is_terminal

if TYPE_CHECKING:
    from proofgrad.core.compile.plan.plan import Kernel, Plan, Step
    from proofgrad.core.tensor.runtime.arena import Arena

# How a loop runs, by colour: the legend is printed by `python -m proofgrad env`.
COLOURS: dict[AxisRole, str] = {
    AxisRole.GLOBAL: "34",  # blue
    AxisRole.BLOCK: "34",
    AxisRole.LANE: "36",
    AxisRole.AHEAD: "31",
    AxisRole.THREAD: "36",  # cyan
    AxisRole.REDUCE: "31",  # red
    AxisRole.UPCAST: "33",  # yellow
    AxisRole.VECTOR: "35",  # magenta
    AxisRole.LOOP: "37",  # white
}
NAME_WIDTH = 36


def coloured(text: str, role: AxisRole) -> str:
    """`text` in the colour of a role, where colours are wanted."""
    if not settings.wants_colours(is_terminal()):
        return text
    return f"\033[{COLOURS[role]}m{text}\033[0m"


def coloured_name(kernel: Kernel) -> str:
    """The name of a kernel, each size in the colour of its loop, padded."""
    padding = " " * max(0, NAME_WIDTH - len(kernel.name))
    program = kernel.source.program
    roles = [] if program is None else [n.arg[1] for n in program.src if n.op is Ops.RANGE]
    head, *sizes = kernel.name.split("_")
    parts = [coloured(size, roles[k]) if k < len(roles) else size for k, size in enumerate(sizes)]
    return "_".join([head, *parts]) + padding


def run_line(plan: Plan, seconds: float) -> str:
    """`2 kernels, 0.3 ms`, copies, and the most memory that buffers between took at once."""
    kernels = sum(step.kernel is not None for step in plan.steps)
    copies = len(plan.steps) - kernels
    also = f", {copies} copies" if copies else ""
    return f"{kernels} kernels, {seconds * 1e3:.1f} ms{also}, peak {size_text(plan.peak_bytes)}"


def recording_line(name: str, kernels: int, arena: Arena) -> str:
    """What TinyJit keeps: kernels, the bytes between, and what they would be without sharing."""
    return (
        f"recorded {name}: {kernels} kernels, {size_text(arena.nbytes)} between them"
        f" ({size_text(arena.unshared_nbytes)} if none were shared)"
    )


def kernel_line(step: Step, device: str, seconds: float) -> str:
    """Device, name, shape of the output, time, rates, and the methods of Tensor it comes from."""
    time = f"{seconds * 1e3:9.3f} ms"
    shape = str(step.shape)
    if step.kernel is None:
        return (
            f"*** {device:<10} {'copy':<{NAME_WIDTH}} {shape:<16} {time} {size_text(step.nbytes)}"
        )
    rate = step.kernel.source.cost_flops / max(seconds, 1e-9) / 1e9
    flow = step.nbytes / max(seconds, 1e-9) / 1e9
    rates = f"{rate:8.1f} GFLOPS {flow:7.1f} GB/s"
    origin = " ".join(step.origin)
    name = coloured_name(step.kernel)
    return f"*** {device:<10} {name} {shape:<16} {time} {rates}  {origin}".rstrip()


def size_text(nbytes: float) -> str:
    """Bytes in a unit that gives few digits."""
    for unit in ("B", "kB", "MB"):
        if nbytes < 1000:
            return f"{nbytes:.0f} {unit}" if unit == "B" else f"{nbytes:.1f} {unit}"
        nbytes /= 1000
    return f"{nbytes:.1f} GB"
