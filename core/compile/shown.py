"""What DEBUG shows of compiling: the graph after each stage, the rules that fired, schedules and texts of kernels.

Owns: which level shows what. Does not own: where it goes (core/messages.py), graphs as text (compile/text), differences (passes/changes.py).
"""

from __future__ import annotations

from collections.abc import Sequence

from proofgrad.core import settings
from proofgrad.core.compile.nests.kernel_schedule import AUTOMATIC, Schedule
from proofgrad.core.compile.passes.stages import Library, Observer, RuleSets, Stage
from proofgrad.core.compile.plan.plan import Kernel
from proofgrad.core.compile.steps.loop_nest import Taken
from proofgrad.core.ir.uop import UOp
from proofgrad.core.messages import say


def show_kernel(kernel: Kernel, schedule: Schedule | None) -> None:
    """The schedule of a kernel with DEBUG=2, its text with DEBUG=3, its machine code with DEBUG=6."""
    if settings.debug_level() >= 2 and schedule is not None and schedule != AUTOMATIC:
        say(f"schedule {kernel.name}: {schedule}")
    if settings.debug_level() >= 3:
        say(kernel.source.text)
    if settings.debug_level() >= 6:
        assembly = kernel.backend.assembly(kernel.source)
        say("no machine code to show" if assembly is None else assembly)


def stage_printer(what: str, library: Library) -> Observer | None:
    """Prints each stage's graph with DEBUG=4; with DEBUG=5 what changed of it, and the rules that fired."""
    level = settings.debug_level()
    if level < 4:
        return None
    from proofgrad.core.compile.passes.changes import Changes, show_stage

    if level == 4:
        return lambda stage, root, _: say(
            f"--- {what}: {stage.name} -> {stage.makes.value}\n{show_stage(root)}"
        )
    before, changes = dict(library.journal.applied), Changes(what)

    def observe(stage: Stage, root: UOp, taken: Sequence[Taken]) -> None:
        say("\n".join([changes.after(stage, root), *[f"step: {one}" for one in taken]]))
        if isinstance(stage.step, RuleSets):
            now = dict(library.journal.applied)
            fired = {name: n - before.get(name, 0) for name, n in now.items()}
            shown = [f"{name} {n}" for name, n in sorted(fired.items()) if n]
            if shown:
                say(f"rules that fired: {', '.join(shown)}")
            before.clear()
            before.update(now)

    return observe
