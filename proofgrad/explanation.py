"""`explain`: what the compiler makes of Tensors, stage by stage, and which rules did it.

Owns: that text. Does not own: the stages (rules/pipeline.py), terms (verify/explain/steps_of_terms.py explains one).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from proofgrad.core import settings
from proofgrad.core.compile.lowering.kernel_names import kernel_name
from proofgrad.core.compile.machine.target import Target
from proofgrad.core.compile.nests.kernel_schedule import AUTOMATIC, Schedule
from proofgrad.core.compile.passes.stages import (
    GraphTactic,
    Library,
    RuleSets,
    Stage,
    Tactic,
    parts_of,
    run_stages,
)
from proofgrad.core.compile.steps.loop_nest import Taken
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.origin import law_of
from proofgrad.core.ir.uop import UOp, toposort
from proofgrad.core.rewrite.journal import Journal
from proofgrad.core.tensor.runtime.canonical import is_not_computed
from proofgrad.core.tensor.runtime.device import Device
from proofgrad.core.tensor.runtime.realize import compiler, graph_to_run
from proofgrad.core.tensor.runtime.scheduling import shown
from proofgrad.core.tensor.tensor import Tensor
from proofgrad.rules.library import LOOSE

MOST_RULES = 6  # shown of each set


def explain(*tensors: Tensor) -> str:
    """The stages that these Tensors go through, the rules that fire, the kernels. Nothing runs.

    Rules that are not exact to the bit (FASTMATH, WINO) are marked as loose.

    Example:
        print(proofgrad.explain((Tensor([1, 2, 3]) + 0).sum()))
    """
    if not tensors:
        raise ValueError("explain takes at least one Tensor")
    device = tensors[0].device
    nodes = [shown(t._uop) for t in tensors]
    explanation = _Explanation()
    for law in filter(None, map(law_of, toposort(nodes, is_not_computed))):
        explanation.journal.record(law, proven=True)  # else the Tensor could not have been made
    return explanation.text(graph_to_run(nodes, device))


@dataclass
class _Explanation:
    journal: Journal = field(default_factory=Journal)
    lines: list[str] = field(default_factory=list)
    _before: Counter[str] = field(default_factory=Counter)

    def text(self, graph: UOp) -> str:
        library = compiler().library.with_journal(self.journal)
        target = _target(graph.arg)
        kernels = run_stages(compiler().graph_stages, graph, library, target, self._stage)
        bodies = [(call.src[0], call.arg.device) for call in kernels.src if not _copies(call)]
        for number, (body, device) in enumerate(bodies, 1):
            self._kernel(number, body, device, library)
        copies = len(kernels.src) - len(bodies)
        head = f"{_count(len(bodies), 'kernel')}, {_count(copies, 'copy', 'copies')}"
        return "\n".join([f"{head}, {self._evidence()}", *self.lines, *self._rules()])

    def _kernel(self, number: int, body: UOp, device: str, library: Library) -> None:
        position = len(self.lines)
        target = _target(device)
        decided: dict[UOp, Schedule] = {}
        stages = compiler().kernel_stages
        made = run_stages(stages, body, library, target, self._stage, decided=decided)
        names = [kernel_name(linear) for linear in parts_of(made)]
        self.lines.insert(position, f"kernel {number}: {', '.join(names)} on {device}")
        for name, linear in zip(names, parts_of(made)):
            schedule = decided.get(linear, AUTOMATIC)
            self.lines.append(f"  schedule of {name}: {str(schedule) or 'nothing is chosen'}")

    def _stage(self, stage: Stage, root: UOp, taken: Sequence[Taken]) -> None:
        """One line: what rules did in a rule stage, the steps that a tactic took, or the name of a procedure."""
        if isinstance(stage.step, (Tactic, GraphTactic)):
            steps = Counter([one.step for one in taken])
            shown = ", ".join([f"{name} {count}" for name, count in steps.items()])
            self.lines.append(f"  {stage.name}: {f'steps {shown}' if shown else 'no step'}")
            return
        if not isinstance(stage.step, RuleSets):
            self.lines.append(f"  {stage.name}: procedure {stage.step.name}")
            return
        now = self.journal.by_set()
        fired = {name: count - self._before[name] for name, count in now.items()}
        self._before = now
        shown = ", ".join([f"{name} {count}" for name, count in sorted(fired.items()) if count])
        self.lines.append(f"  {stage.name}: {shown or 'no rule fires'}")

    def _evidence(self) -> str:
        loose = sum([n for name, n in self.journal.applied.items() if self._is_loose(name)])
        rewrites = _count(self.journal.total, "rewrite")
        return f"{rewrites}, {self.journal.unproven} unproven, {loose} loose"

    def _is_loose(self, name: str) -> bool:
        """Whether the rule of that full name is not exact to the bit."""
        return name.startswith(LOOSE) or name in compiler().library.loose_rules

    def _rules(self) -> list[str]:
        """Each set with its busiest rules."""
        lines = ["rules that fired:"] if self.journal.total else []
        for ruleset, total in sorted(self.journal.by_set().items()):
            prefix = f"{ruleset}."
            of_set = {n: c for n, c in self.journal.applied.items() if n.startswith(prefix)}
            busiest = Counter(of_set).most_common(MOST_RULES)
            shown = ", ".join([f"{name.removeprefix(prefix)} {count}" for name, count in busiest])
            more = len(of_set) - len(busiest)
            loose = [n.removeprefix(prefix) for n in of_set if self._is_loose(n)]
            mark = "  LOOSE" if len(loose) == len(of_set) else ""
            lines.append(f"  {ruleset} {total}{mark}: {shown}{f', {more} more' if more else ''}")
            if loose and not mark:
                lines.append(f"    LOOSE: {', '.join(sorted(loose))}")
        return lines


def _copies(call: UOp) -> bool:
    return call.src[0].src[0].op is Ops.COPY


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"


def _target(device: str) -> Target:
    """The machine, as what is asked for lets it be used."""
    return Device[device].target.as_asked(*settings.asked_of_machine())
