"""One product of 4x6 and 6x8, stage by stage. Run: python docs/one_product.py [SCHEDULE] [STAGE ...]

A schedule is text with an = in it, as "tile=2x2x4". Without a name of a stage, all are printed. The machine is described here, so the text is the same everywhere:
vectors of 16 bytes, 16 of them, one thread. docs/kernel.md goes through what this prints.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

from proofgrad import Tensor
from proofgrad.core.compile.machine.target import Target
from proofgrad.core.compile.nests.kernel_schedule import Schedule, read_schedule
from proofgrad.core.compile.passes.changes import show_stage
from proofgrad.core.compile.passes.stages import Stage, parts_of, run_stages
from proofgrad.core.compile.steps.loop_nest import Taken
from proofgrad.core.compile.text.show import show_nest
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.runtime.realize import compiler, graph_to_run
from proofgrad.rules.pipeline import GRAPH_STAGES, KERNEL_STAGES

MACHINE = Target("EXAMPLE", vector_bytes=16, vector_registers=16)


def product() -> Tensor:
    a, b = (
        Tensor.full((4, 6), 2.0).contiguous().realize(),
        Tensor.full((6, 8), 3.0).contiguous().realize(),
    )
    return a @ b


def parts(override: Schedule) -> Iterator[tuple[str, str]]:
    """The name and the text of each part of the way, from the graph to the machine's instructions."""
    graph, library = graph_to_run([product().uop], "CPU"), compiler().library
    yield "graph", show_nest(graph)
    found: list[tuple[str, str]] = []
    before = graph

    def observe(stage: Stage, root: UOp, taken: Sequence[Taken]) -> None:
        nonlocal before
        steps = "".join([f"{step}\n" for step in taken])
        found.append(
            (stage.name, "nothing changed" if root is before else steps + show_stage(root))
        )
        before = root

    (call,) = run_stages(GRAPH_STAGES, graph, library, MACHINE, observe).src
    before = call.src[0]
    decided: dict[UOp, Schedule] = {}
    made = run_stages(KERNEL_STAGES, before, library, MACHINE, observe, override, decided)
    yield from found
    yield "schedule", "\n".join([str(decided[linear]) for linear in parts_of(made)])
    yield from code(parts_of(made)[-1])


def code(linear: UOp) -> Iterator[tuple[str, str]]:
    """The text for LLVM, and what it makes of it for a processor of 2013."""
    from llvmlite import binding as llvm

    from proofgrad.backends.cpu import backend

    text = backend().emit(linear, "product").text
    yield "source", text
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = llvm.Target.from_triple("x86_64-unknown-linux-gnu")
    machine = target.create_target_machine(cpu="haswell", opt=2)
    yield "instructions", str(machine.emit_assembly(llvm.parse_assembly(text)))


overrides = [word for word in sys.argv[1:] if "=" in word]
names = [word for word in sys.argv[1:] if "=" not in word]
for name, text in parts(read_schedule(" ".join(overrides))):
    if not names or name in names:
        print(f"--- {name}\n{text}")
