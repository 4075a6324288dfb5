"""One product of 4x6 and 6x8, stage by stage. Run: python docs/one_product.py [STAGE ...]

Without a name of a stage, all are printed. The machine is described here, so the text is the same everywhere:
vectors of 16 bytes, 16 of them, one thread. docs/schedules.md goes through what this prints.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from proofgrad import Tensor
from proofgrad.core.compile.context import Context
from proofgrad.core.compile.nest_changes import show_stage
from proofgrad.core.compile.nest_text import show_nest
from proofgrad.core.compile.stages import Tactic, run_stages
from proofgrad.core.compile.steps.loop_nest import lowered
from proofgrad.core.compile.target import Target
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.realize import compiler, graph_to_run
from proofgrad.rules.pipeline import GRAPH_STAGES, KERNEL_STAGES

MACHINE = Target("EXAMPLE", vector_bytes=16, vector_registers=16)


def product() -> Tensor:
    a, b = (
        Tensor.full((4, 6), 2.0).contiguous().realize(),
        Tensor.full((6, 8), 3.0).contiguous().realize(),
    )
    return a @ b


def parts() -> Iterator[tuple[str, str]]:
    """The name and the text of each part of the way, from the graph to the machine's instructions."""
    graph = graph_to_run([product().uop], "CPU")
    yield "graph", show_nest(graph)
    library = compiler().library
    for stage in GRAPH_STAGES:
        before, graph = graph, run_stages([stage], graph, library, MACHINE)
        yield stage.name, "nothing changed" if graph is before else show_stage(graph)
    (call,) = graph.src
    kernel = call.src[0]
    for stage in KERNEL_STAGES:
        before, steps = (
            kernel,
            steps_of(stage.step, kernel) if isinstance(stage.step, Tactic) else "",
        )
        kernel = run_stages([stage], kernel, library, MACHINE)
        yield stage.name, "nothing changed" if kernel is before else f"{steps}{show_nest(kernel)}"
    yield from code(kernel)


def steps_of(tactic: Tactic, kernel: UOp) -> str:
    """The steps that a tactic takes, a line each."""
    facts = compiler().library.facts()
    nest = tactic.function(lowered(kernel, facts, MACHINE), Context(MACHINE, facts))
    taken = nest[0].taken if isinstance(nest, tuple) else nest.taken
    return "".join([f"{step}\n" for step in taken])


def code(linear: UOp) -> Iterator[tuple[str, str]]:
    """The text for LLVM, and what it makes of it for a processor of 2008."""
    from llvmlite import binding as llvm

    from proofgrad.backends.cpu import backend

    text = backend().emit(linear, "product").text
    yield "source", text
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = llvm.Target.from_triple("x86_64-unknown-linux-gnu")
    machine = target.create_target_machine(cpu="nehalem", opt=2)
    yield "instructions", str(machine.emit_assembly(llvm.parse_assembly(text)))


for name, text in parts():
    if len(sys.argv) < 2 or name in sys.argv[1:]:
        print(f"--- {name}\n{text}")
