"""The compiler as a list: what a stage is, how a list of stages runs, how it is printed.

Owns: Stage, its kinds (rule sets, tactics on kernels and on whole programs, procedures), running with checks and an observer.
Does not own: the list itself, which is rules/pipeline.py.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from proofgrad.core import settings
from proofgrad.core.compile.machine.target import Target
from proofgrad.core.compile.nests.kernel_schedule import Schedule, forced_schedule
from proofgrad.core.compile.passes.context import Context
from proofgrad.core.compile.passes.forms import Form, check_form
from proofgrad.core.compile.steps.cuts import largest_slot
from proofgrad.core.compile.steps.loop_nest import (
    LoopNest,
    StepRefused,
    Taken,
    check_whole,
    lowered,
)
from proofgrad.core.compile.steps.tensor_program import TensorProgram, traced
from proofgrad.core.ir.op_names import LINEAR, SINK
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp
from proofgrad.core.rewrite.engine import Rewriter
from proofgrad.core.rewrite.facts import Facts
from proofgrad.core.rewrite.journal import Journal
from proofgrad.core.rewrite.match import RuleSet
from proofgrad.core.rewrite.rule import Rule


@dataclass(frozen=True, slots=True)
class RuleSets:
    """A step that applies proven rules, and nothing else, until none fires.

    `lacking`: sets for machines that have no instruction for an operation.
    """

    names: tuple[str, ...]
    lacking: tuple[tuple[Ops, str], ...] = ()

    def used(self, native: Collection[Ops]) -> tuple[str, ...]:
        """The names of the sets that are used for a machine which prints some operations itself."""
        return (*self.names, *[name for op, name in self.lacking if op not in native])


class _Pass:
    """A stage that is a function: its name, and the first line of its docstring."""

    __slots__ = ()
    function: Callable[..., Any]

    @property
    def name(self) -> str:
        return self.function.__name__

    @property
    def purpose(self) -> str:
        return (self.function.__doc__ or "").strip().splitlines()[0]


@dataclass(frozen=True, slots=True)
class Tactic(_Pass):
    """A pass that chooses steps (core/compile/steps), and changes a kernel by them alone.

    So it can make a kernel slow, never wrong. Where a step refuses, the kernel stays as it was before the tactic.
    """

    function: Callable[[LoopNest, Context], LoopNest | tuple[LoopNest, ...]]
    has_override: bool = False  # whether CHOICES may set what it chooses
    required: bool = False  # what comes after needs what it makes: a refusal is an error

    def __call__(self, nest: LoopNest, context: Context) -> tuple[LoopNest, ...]:
        """The nests that it makes, in running order. Raises: StepRefused; TypeError for what no step made."""
        made = self.function(nest, context)
        nests = made if isinstance(made, tuple) else (made,)
        if made is not nest:
            check_whole(nest, nests)
        return nests


@dataclass(frozen=True, slots=True)
class GraphTactic(_Pass):
    """A pass that chooses steps on a whole program, and changes it by them alone. Where one refuses, as with a Tactic."""

    function: Callable[[TensorProgram, Context], TensorProgram]
    required: bool = False
    # True: it takes reductions in parts, in an order that is not specified: elements can be followed, values differ by rounding.
    in_parts: bool = False

    def __call__(self, program: TensorProgram, context: Context) -> TensorProgram:
        """The program that it makes. Raises: StepRefused; TypeError for what no step made."""
        made = self.function(program, context)
        if type(made) is not TensorProgram:
            raise TypeError(f"what no step made: {made}")
        return made


@dataclass(frozen=True, slots=True)
class Procedure(_Pass):
    """A pass that is neither rules nor steps: needs memory, or makes another form. Each has a validation test."""

    function: Callable[..., UOp]
    takes: tuple[str, ...] = ()  # what it asks of the Context, in the order of its arguments
    # Which nodes have values that it computes in another way, within bounds that docs give: all others stay as they are.
    computes: Callable[[UOp], bool] = lambda node: False

    def __call__(self, graph: UOp, context: Context) -> UOp:
        return self.function(graph, *[getattr(context, name) for name in self.takes])


@dataclass(frozen=True, slots=True)
class Stage:
    """One line of the compiler: from one form to the same or the next."""

    name: str
    makes: Form
    step: RuleSets | Tactic | GraphTactic | Procedure
    optional: bool = False  # left out with NOOPT=1


@dataclass(frozen=True, slots=True)
class Added:
    """Rules that a user added, and the classes that FASTMATH has to name for them to be used."""

    needs: frozenset[str]
    rules: RuleSet


class Library:
    """The rule sets that were loaded with their evidence, by name."""

    def __init__(
        self,
        sets: dict[str, RuleSet],
        facts: Sequence[str],
        cotangents: str,
        journal: Journal,
        load_loose: Callable[[str], RuleSet] | None = None,
    ) -> None:
        self.sets = sets
        self.fact_sets = tuple(facts)
        self.cotangents = cotangents
        self.journal = journal
        self._added: dict[str, tuple[Added, ...]] = {}
        self._load_loose = load_loose
        self._loose: dict[str, RuleSet] = {}

    def add(self, rules: RuleSet, always: Collection[str] = ()) -> None:
        """More rules for every rule stage; a set of the same name is replaced.

        Loose rules are used while FASTMATH names their classes, but for those named in `always`.

        Raises: ValueError for the name of a set of the library.
        """
        if rules.name in self.sets:
            raise ValueError(f"the library has a rule set {rules.name!r}; choose another name")
        parts: dict[frozenset[str], list[Rule]] = {}
        for rule in rules.rules:
            parts.setdefault(rule.loose_classes.difference(always), []).append(rule)
        self._added[rules.name] = tuple(
            [Added(needs, RuleSet(rules.name, part, rules.proven)) for needs, part in parts.items()]
        )

    def added_rules(self, name: str) -> frozenset[str]:
        """The names of the rules of a set that was added."""
        parts = self._added.get(name, ())
        return frozenset([rule.name for part in parts for rule in part.rules.rules])

    @property
    def loose_rules(self) -> dict[str, frozenset[str]]:
        """The rules that were added and are not exact to the bit, with their classes."""
        added = [
            rule for parts in self._added.values() for part in parts for rule in part.rules.rules
        ]
        return {rule.full_name: rule.loose_classes for rule in added if rule.loose_classes}

    def with_journal(self, journal: Journal) -> Library:
        """The same rules, counted elsewhere."""
        other = Library(self.sets, self.fact_sets, self.cotangents, journal, self._load_loose)
        other._added, other._loose = self._added, self._loose
        return other

    def rules_of(self, names: Sequence[str]) -> list[RuleSet]:
        """The sets of a stage, then those that were added, then the loose ones that FASTMATH names."""
        asked = settings.fastmath()
        added = [part for parts in self._added.values() for part in parts]
        now = [part.rules for part in added if part.needs.issubset(asked)]
        loose = [self.loose(name) for name in asked]
        return [*[self.sets[name] for name in names], *now, *loose]

    def loose(self, name: str) -> RuleSet:
        """A set of laws that are not exact to the bit. Raises: EvidenceError."""
        if name not in self._loose:
            if self._load_loose is None:
                raise ValueError(f"this library has no loose laws, so none of {name}")
            self._loose[name] = self._load_loose(name)
        return self._loose[name]

    def facts(self) -> Facts:
        """What is known about nodes, by the library's transfer functions. Nothing yet."""
        return Facts(*[self.sets[name] for name in self.fact_sets])


# Told after each stage: the stage, the graph that it made, and the steps that a tactic took.
Observer = Callable[[Stage, UOp, Sequence[Taken]], None]
# For stages that ask nothing of a machine.
NO_MACHINE = Target("none")


def run_stages(
    stages: Sequence[Stage],
    root: UOp,
    library: Library,
    target: Target = NO_MACHINE,
    observe: Observer | None = None,
    override: Schedule | None = None,
    decided: dict[UOp, Schedule] | None = None,
    strict: bool = False,
    known: Known | None = None,
) -> UOp:
    """`root` after every stage; `override` None: that of the environment.

    `decided` gets the schedule of each kernel that is made; `known` is what graphs share that are compiled together.
    Raises: FormError where a check is asked for and fails; StepRefused if `strict` and a step does.
    """
    override = forced_schedule() if override is None else override
    decided = {} if decided is None else decided

    def new_runner(slots: int) -> _Runner:
        shared = Known(library) if known is None else known
        return _Runner(library, target, observe, override, decided, strict, slots, shared)

    return _run(stages, root, new_runner)


def _run(
    stages: Sequence[Stage], root: UOp, new_runner: Callable[[int], _Runner], other_slots: int = 0
) -> UOp:
    """`root` after every stage, each part that one becomes with a runner of its own.

    A part's own tables are none of the parameters that other parts have: each is filled once.
    """
    runner = new_runner(other_slots)
    for position, stage in enumerate(stages):
        if len(parts_of(root)) > 1:
            return _run_parts(stages[position:], root.src, new_runner, other_slots)
        root = runner.run(stage, root)
    if runner.schedule is not None:
        runner.schedules[root] = runner.schedule
    return root


def _run_parts(
    stages: Sequence[Stage],
    parts: Sequence[UOp],
    new_runner: Callable[[int], _Runner],
    other_slots: int,
) -> UOp:
    """What each part becomes, in order."""
    made: list[UOp] = []
    behind = [largest_slot((part,)) for part in parts]
    for number, part in enumerate(parts):
        others = max(other_slots, *behind[number + 1 :], 0)
        new = parts_of(_run(stages, part, new_runner, others))
        other_slots = max(other_slots, largest_slot(new))
        made += new
    return UOp.sink(*made)


def parts_of(made: UOp) -> tuple[UOp, ...]:
    """The graphs that a stage made of one, to be run in order; else the one graph."""
    is_several = made.op is SINK and bool(made.src) and made.src[0].op in (SINK, LINEAR)
    return made.src if is_several else (made,)


class Known:
    """What is known of terms: facts, and normal forms by the sets of rules. Kernels of one program have many terms in common."""

    def __init__(self, library: Library) -> None:
        self.facts = library.facts()
        self.rewriters: dict[tuple[str, ...], Rewriter] = {}


class _Runner:
    """Runs stages one by one."""

    def __init__(
        self,
        library: Library,
        target: Target,
        observe: Observer | None,
        override: Schedule,
        schedules: dict[UOp, Schedule],
        strict: bool,
        other_slots: int,
        known: Known,
    ) -> None:
        self.library, self.observe, self.other_slots = library, observe, other_slots
        self.no_rules = settings.wants_no_rules()
        self.plain = settings.wants_plain_loops()
        self.checked = settings.checks_forms()
        self.strict = strict or self.checked  # a step that is refused is an error
        self.facts, self.rewriters = known.facts, known.rewriters
        self.context = Context(target, self.facts, override)
        self.schedules = schedules  # what tactics decided for the graphs that they made
        self.schedule: Schedule | None = None  # of the kernel, as far as it is decided
        self.taken: tuple[Taken, ...] = ()  # the steps of the last stage

    def run(self, stage: Stage, root: UOp) -> UOp:
        is_rules = isinstance(stage.step, RuleSets)
        if stage.optional and (self.no_rules if is_rules else self.plain):
            return root
        self.taken = ()
        match stage.step:
            case RuleSets() as rules:
                names = rules.used(self.context.native)
                if names not in self.rewriters:
                    sets = self.library.rules_of(names)
                    self.rewriters[names] = Rewriter(sets, self.facts, self.library.journal)
                root = self.rewriters[names].rewrite(root)
            case Tactic() as tactic:
                root = self._taken(tactic, root)
            case GraphTactic() as tactic:
                root = self._taken_of_graph(tactic, root)
            case Procedure() as procedure:
                root = procedure(root, self.context)
        if self.checked:
            for part in parts_of(root):
                check_form(stage.makes, part)
        if self.observe is not None:
            self.observe(stage, root, self.taken)
        return root

    def _taken(self, tactic: Tactic, root: UOp) -> UOp:
        """What a tactic makes; the graph itself where a step refuses, which SPEC=1 reports."""
        start = lowered(root, self.facts, self.context.target, self.other_slots)
        nest = start.scheduled(self.schedules.get(root))
        try:
            nests = tactic(nest, self.context)
        except StepRefused:
            if self.strict or tactic.required:
                raise
            return root
        self.taken = tuple({id(one): one for made in nests for one in made.taken}.values())
        for made in nests:
            if made.schedule is not None:
                self.schedule = self.schedules[made.graph] = made.schedule
        return nests[0].graph if len(nests) == 1 else UOp.sink(*[made.graph for made in nests])

    def _taken_of_graph(self, tactic: GraphTactic, root: UOp) -> UOp:
        """As `_taken`, of a whole program."""
        try:
            made = tactic(traced(root), self.context)
        except StepRefused:
            if self.strict or tactic.required:
                raise
            return root
        self.taken = tuple(made.taken)
        return made.graph


def stages_with_override(stages: Sequence[Stage]) -> list[str]:
    """The names of the stages that CHOICES speaks to."""
    return [s.name for s in stages if isinstance(s.step, Tactic) and s.step.has_override]


def show_stages(stages: Sequence[Stage], sizes: dict[str, int]) -> list[tuple[str, str, str, str]]:
    """Rows (form made, stage, kind, what it is) for people; `sizes`: rules in each set."""
    rows: list[tuple[str, str, str, str]] = []
    for stage in stages:
        match stage.step:
            case RuleSets() as rules:
                names = rules.used(())
                what = ", ".join(f"{name} ({sizes.get(name, 0)})" for name in names)
                rows.append((stage.makes.value, stage.name, "rules", what))
            case Tactic() | GraphTactic() | Procedure() as step:
                kind = "procedure" if isinstance(step, Procedure) else "tactic"
                rows.append((stage.makes.value, stage.name, kind, step.purpose))
    return rows
