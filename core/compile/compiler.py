"""The driver: from a graph of tensor nodes to launches, with a cache at each level.

Owns: plans (the launches that fill the roots of a graph), kernels, and their caches. Does not own: slots and launches
(planning.py), the stages (rules/pipeline.py), the machines (backends), memory (core/tensor/runtime/memory.py).
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from proofgrad.core import settings
from proofgrad.core.compile.in_copies import copies_worth_it, make_in_copies
from proofgrad.core.compile.lowering.kernel_names import kernel_name
from proofgrad.core.compile.lowering.parameters import slots_of, with_dense_slots, written_parameter
from proofgrad.core.compile.machine.target import Backend, CompileError, Source, Target
from proofgrad.core.compile.nests.kernel_schedule import (
    Schedule,
    ScheduleError,
    forced_schedule,
    read_schedule,
    what_is_not_done,
)
from proofgrad.core.compile.passes.forms import Form
from proofgrad.core.compile.passes.stages import (
    Known,
    Library,
    Observer,
    RuleSets,
    Stage,
    Tactic,
    parts_of,
    run_stages,
)
from proofgrad.core.compile.plan.background import Background
from proofgrad.core.compile.plan.bounded_cache import Newest
from proofgrad.core.compile.plan.checks import KernelCheck, ValueCheck
from proofgrad.core.compile.plan.collector import rare_collection
from proofgrad.core.compile.plan.copies import may_be_copied
from proofgrad.core.compile.plan.known_kernels import KnownKernels
from proofgrad.core.compile.plan.plan import Kernel, Plan
from proofgrad.core.compile.plan.reuse import write_in_place
from proofgrad.core.compile.planning import plan_of
from proofgrad.core.compile.shown import show_kernel, stage_printer
from proofgrad.core.compile.steps.loop_nest import StepRefused, Taken
from proofgrad.core.ir.op_names import PARAM
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.shapes import is_plain
from proofgrad.core.ir.uop import UOp
from proofgrad.core.messages import Progress, say
from proofgrad.core.rewrite.journal import Journal
from proofgrad.core.rewrite.match import RuleSet
from proofgrad.core.rewrite.rule import rule_to_json

if TYPE_CHECKING:
    from proofgrad.core.compile.plan.store import PlanStore


# Far more than one program uses. What a loop makes anew in each step goes, and is read from the disk
# if it is asked for again.
MOST_PLANS = MOST_KERNELS = 4096
_READ_BY_STAGES = settings.encoded(*settings.READ_BY_STAGES)


class Compiler:
    """Compiles graphs. One per process; holds every cache that is not on disk."""

    def __init__(
        self,
        stages: Callable[[], tuple[Sequence[Stage], Sequence[Stage]]],
        library: Callable[[], Library],
        backend: Callable[[str], Backend],
        make_check: Callable[[], KernelCheck] | None = None,
        store: PlanStore | None = None,
        make_value_check: Callable[[], ValueCheck] | None = None,
    ) -> None:
        self._load_stages = stages
        self._load_library = library
        self._backend = backend
        self._make_check = make_check
        self._make_value_check = make_value_check
        self._store = store
        # A digest of all rules that were added, which plans in the store are kept by.
        self._added = ""
        self._library: Library | None = None
        self._plans: Newest[tuple[Any, ...], Plan] = Newest(MOST_PLANS)
        self._kernels = KnownKernels(MOST_KERNELS)
        self.kernel_check: KernelCheck | None = None  # made when PROVE=1 first asks for it
        self.value_check: ValueCheck | None = None  # made when CHECK=1 first asks for it

    @functools.cached_property
    def graph_stages(self) -> Sequence[Stage]:
        """What is done to a graph of tensor nodes, loaded when first needed: not where all plans are kept ones."""
        return self._load_stages()[0]

    @functools.cached_property
    def kernel_stages(self) -> Sequence[Stage]:
        """What is done to each kernel, loaded when first needed."""
        return self._load_stages()[1]

    @property
    def library(self) -> Library:
        """The rules, loaded with their evidence when first needed."""
        if self._library is None:
            self._library = self._load_library()
        return self._library

    @property
    def kernels_compiled(self) -> int:
        """How many kernels this process has made, for all bodies and devices, also those that it holds no more."""
        return self._kernels.made

    @property
    def epoch(self) -> object:
        """Another object once plans were dropped."""
        return self._plans

    def use_rules(self, rules: RuleSet, always: Collection[str] = ()) -> None:
        """Let every rule stage use more rules; plans and kernels made before are dropped.

        Loose rules are used while FASTMATH names their classes, but for those named in `always`.
        """
        self.library.add(rules, always)
        written = [self._added, rules.name, *map(rule_to_json, rules.rules), sorted(always)]
        self._added = sha256(json.dumps(written).encode()).hexdigest()
        if not rules.proven:
            self._store = None  # what they make is for this process alone
        self.forget()

    def forget(self) -> None:
        """Drop every plan and kernel of this process."""
        self._plans = Newest(MOST_PLANS)
        self._kernels.clear()

    def plan(self, root: UOp, unneeded: frozenset[int] = frozenset()) -> Plan:
        """The launches that fill the roots of `root`, a SINK whose inputs are numbered from 0.

        Results may be written over inputs whose numbers are `unneeded`: nobody reads them later.
        """
        asked = unneeded, settings.traces_methods(), *_settings()
        key = (root, self._backend(root.arg), *asked)  # which another of that name replaces
        known = self._plans.get(key)
        if known is None:
            known = self._plans[key] = self._kept_plan(root, unneeded)
        return known

    def _kept_plan(self, root: UOp, unneeded: frozenset[int]) -> Plan:
        """A plan from the disk, else a new one, which is put there."""
        store, backend = self._store, self._backend(root.arg)
        if store is None or not settings.keeps_plans() or not store.serves(backend):
            return self._new_plan(root, unneeded)
        key = store.key(root, unneeded, (*_settings(), self._added), backend)
        plan = store.get(key, backend)
        if plan is None:
            plan = self._new_plan(root, unneeded)
            store.put(key, plan, backend)
        return plan

    @rare_collection()
    def _new_plan(self, root: UOp, unneeded: frozenset[int]) -> Plan:
        cut: list[
            tuple[Stage | None, UOp]
        ] = []  # the tensor graph, after each stage before the cut
        graph = self.kernel_graph(root, cut)
        graph = write_in_place(graph, unneeded, self.index_terms) if unneeded else graph
        if len(graph.src) == 1:  # nothing to do meanwhile
            return self._make_plan(graph, cut, None)
        progress = Progress("proofgrad compiles kernel", len(graph.src))
        try:
            with Background() as background, progress:
                return self._make_plan(graph, cut, background, progress)
        except BaseException:
            self._kernels.drop_uncompiled()
            raise

    def kernel_graph(self, root: UOp, passed: list[tuple[Stage | None, UOp]] | None = None) -> UOp:
        """The KernelGraph of a TensorGraph; `passed` gets the tensor graphs on the way."""
        target, shown = self._target(root.arg), stage_printer("graph", self.library)
        before = [] if passed is None else passed
        before.append((None, root))

        def observe(stage: Stage, made: UOp, taken: Sequence[Taken]) -> None:
            if stage.makes is Form.TENSOR_GRAPH:
                before.append((stage, made))
            if shown is not None:
                shown(stage, made, taken)

        return run_stages(self.graph_stages, root, self.library, target, observe)

    def _make_plan(
        self,
        graph: UOp,
        passed: Sequence[tuple[Stage | None, UOp]],
        background: Background | None,
        progress: Progress | None = None,
    ) -> Plan:
        known = Known(self.library)

        def kernels_of(body: UOp, device: str) -> tuple[Kernel, ...]:
            return self._kernels_of(body, device, background, known)

        if background is not None and progress is not None:
            self._make_in_copies(graph, known, progress)
        has_lines = settings.debug_level() > 0  # beside which one of progress is not seen
        plan, compiled = plan_of(graph, kernels_of, None if has_lines else progress)
        if (check := self.checks()) is not None:
            check.plan(passed, graph, plan, compiled)
        return plan

    def _make_in_copies(self, graph: UOp, known: Known, progress: Progress) -> None:
        """The kernels of a large graph, by this process and by copies of it, but where somebody looks on."""
        looks = self._is_watched() or self.checks() is not None
        looks = looks or self.library.journal.observe is not None
        if looks or not settings.may_copy_process() or not may_be_copied():
            return
        calls = dict.fromkeys([(call.src[0], call.arg.device) for call in graph.src])
        tasks = [call for call in calls if self._is_new(*call)][:MOST_KERNELS]
        cores = min([self._target(device).threads for _, device in tasks], default=1)
        count = copies_worth_it(len(tasks), cores)
        if count == 0:
            return

        def kernels_of(body: UOp, device: str) -> tuple[Kernel, ...]:
            return self._kernels_of(body, device, None, known)

        journal = self.library.journal
        made = make_in_copies(tasks, count, kernels_of, self._backend, journal, progress.done)
        for task, kernels in made.items():
            self._kernels.put(self._key(*task), kernels)

    def _is_new(self, body: UOp, device: str) -> bool:
        """Whether kernels are to be made that copies of the process can make."""
        is_copy, key = body.src[0].op is Ops.COPY, self._key(body, device)
        may = self._backend(device).compiles_in_copies
        return may and not is_copy and key not in self._kernels.by_body

    def checks(self) -> ValueCheck | None:
        """What compares values, if CHECK=1 or PROVE=1 asks for it."""
        if not settings.checks_values():
            return None
        if self.value_check is None and self._make_value_check is not None:
            self.value_check = self._make_value_check()
        return self.value_check

    def kernels(self, body: UOp, device: str) -> tuple[Kernel, ...]:
        """The compiled kernels of a body, a SINK over PARAMs: those that fill its tables first."""
        return self._kernels_of(body, device, None, None)

    def _kernels_of(
        self, body: UOp, device: str, background: Background | None, known: Known | None
    ) -> tuple[Kernel, ...]:
        key = self._key(body, device)
        made = self._kernels.by_body.get(key)
        if made is None:
            made = self._shared(body, device, background, known)
            self._kernels.put(key, made)
        return made

    def _key(self, body: UOp, device: str) -> tuple[Any, ...]:
        return body, device, self._backend(device), *_settings()

    def _shared(
        self, body: UOp, device: str, background: Background | None, known: Known | None
    ) -> tuple[Kernel, ...]:
        """The kernels of a body, compiled unless those of another one with the same terms are.

        Where somebody looks at each kernel as it is made, each is made.
        """
        rules = self._first_rules()
        if rules is None or self._is_watched():
            return self._compile(body, device, background)
        stages, target = self.kernel_stages, self._target(device)
        terms = run_stages(stages[:rules], body, self.library, target, known=known)
        key = (terms, device, self._backend(device), *_settings())
        made = self._kernels.by_terms.get(key)
        if made is None:
            made = self._of_terms(terms, rules, device, background, known)
            self._kernels.by_terms[key] = made
        if (check := self.checks()) is not None:
            check.kernels(body, made)
        return made

    def _of_terms(
        self,
        terms: UOp,
        rules: int,
        device: str,
        background: Background | None,
        known: Known | None,
    ) -> tuple[Kernel, ...]:
        """The kernels of terms after so many stages, compiled unless those of others are the same loops before anything is chosen."""
        before, after = _around_choices(self.kernel_stages[rules:])
        library, target, decided = self.library, self._target(device), dict[UOp, Schedule]()
        loops = run_stages(before, terms, library, target, decided=decided, known=known)
        key = (loops, decided.get(loops), device, self._backend(device), *_settings())
        made = self._kernels.by_terms.get(key)
        if made is None:
            whole = run_stages(after, loops, library, target, decided=decided, known=known)
            made = tuple([self._compiled(linear, device, background) for linear in parts_of(whole)])
            self._kernels.by_terms[key] = made
        return made

    def _first_rules(self) -> int | None:
        """How many stages there are up to and with the first one of rules; None: there is no such stage."""
        positions = [
            k for k, stage in enumerate(self.kernel_stages) if isinstance(stage.step, RuleSets)
        ]
        return positions[0] + 1 if positions else None

    def _is_watched(self) -> bool:
        """Is something asked of each kernel: to be shown, proved, searched, or to be as said by hand?"""
        return bool(
            settings.debug_level() >= 2
            or settings.proves_kernels()
            or settings.beam_width()
            or settings.schedule_text()
            or settings.wants_plain_loops()
        )

    def program(self, body: UOp, device: str) -> UOp:
        """The Program form of a kernel body for a device: a SINK of STOREs, not in order yet."""
        stages = [stage for stage in self.kernel_stages if stage.makes is not Form.LINEAR]
        target = self._target(device)
        return run_stages(stages, body, self.library, target, stage_printer("kernel", self.library))

    def linears(
        self,
        body: UOp,
        device: str,
        override: Schedule | None = None,
        decided: dict[UOp, Schedule] | None = None,
        observe: Observer | None = None,
    ) -> tuple[UOp, ...]:
        """The Linear forms of a kernel body for a device: one, or those that fill its tables first.

        `decided` gets their schedules. Raises: ScheduleError where one written by hand does not fit.
        """
        target, by_hand = self._target(device), settings.schedule_text()
        observe = stage_printer("kernel", self.library) if observe is None else observe
        decided = {} if decided is None else decided
        stages, library = self.kernel_stages, self.library
        if not by_hand:
            return parts_of(run_stages(stages, body, library, target, observe, override, decided))
        whole = read_schedule(by_hand, "SCHEDULE")
        try:
            made = run_stages(stages, body, library, target, observe, whole, decided, strict=True)
        except StepRefused as error:
            raise ScheduleError(f"schedule {by_hand}: a step is refused: {error}") from error
        done = [decided[linear] for linear in parts_of(made) if linear in decided]
        if missing := what_is_not_done(whole, done):
            name, taken = kernel_name(parts_of(made)[-1]), "; ".join(map(str, done)) or "nothing"
            raise ScheduleError(
                f"schedule {by_hand}: the kernel {name} cannot have {' '.join(missing)}; it would take: {taken}."
                " Ask for what fits it, and realize other Tensors before, outside of the block"
            )
        return parts_of(made)

    def index_terms(self, body: UOp) -> UOp:
        """A kernel body up to and with the first stage of rules: one loop an axis, terms tidied."""
        return run_stages(self.kernel_stages[: self._first_rules()], body, self.library)

    def _checked(
        self, body: UOp, device: str, override: Schedule, decided: dict[UOp, Schedule]
    ) -> tuple[UOp, ...] | None:
        """The Linear forms of a kernel body that the check has seen; None where there is no check."""
        if self.kernel_check is None:
            if self._make_check is None:
                return None
            self.kernel_check = self._make_check()
        trace: list[tuple[Stage, UOp]] = []
        shown = stage_printer("kernel", self.library)

        def observe(stage: Stage, root: UOp, taken: Sequence[Taken]) -> None:
            trace.append((stage, root))
            if shown is not None:
                shown(stage, root, taken)

        linears = self.linears(body, device, override, decided, observe)
        self.kernel_check(kernel_name(linears[-1]), body, trace)
        return linears

    def sources(self, body: UOp, device: str) -> tuple[Source, ...]:
        """The texts of a kernel body for a device."""
        linears = self.linears(body, device)
        return tuple([self._emit(with_dense_slots(x, slots_of(x)), device) for x in linears])

    def _emit(self, linear: UOp, device: str) -> Source:
        name = kernel_name(linear)
        try:
            source = self._backend(device).emit(linear, name)
        except CompileError as error:
            error.add_note(f"in the kernel {name} for {device}, which DEBUG=4 prints before this")
            raise
        return replace(source, program=linear)

    def _compile(self, body: UOp, device: str, background: Background | None) -> tuple[Kernel, ...]:
        override = self._override(body, device)
        decided: dict[UOp, Schedule] = {}
        linears = None
        if settings.proves_kernels():
            linears = self._checked(body, device, override, decided)
        linears = self.linears(body, device, override, decided) if linears is None else linears
        kernels = tuple([self._compiled(linear, device, background) for linear in linears])
        for kernel, linear in zip(kernels, linears):
            show_kernel(kernel, decided.get(linear))
        if (check := self.checks()) is not None:
            check.kernels(body, kernels)
        return kernels

    def _override(self, body: UOp, device: str) -> Schedule:
        """The override of a kernel: that of the environment, or what a search for BEAM finds."""
        forced, backend = forced_schedule(), self._backend(device)
        plain = settings.beam_width() == 0 or settings.wants_plain_loops()
        plain = plain or bool(settings.schedule_text())
        if plain or not all(is_plain(node.shape) for node in body.toposort()):
            return forced
        from proofgrad.core.compile.tune.search import Search, may_search

        library = self.library.with_journal(Journal())  # what is only tried does not count
        before, after = _around_choices(self.kernel_stages)
        target = self._target(device)
        kernel = run_stages(before, body, library, target, override=forced)
        if len(parts_of(kernel)) > 1 or not may_search(kernel, backend):
            return forced

        def compile_(override: Schedule) -> tuple[Kernel, ...]:
            linears = parts_of(run_stages(after, kernel, library, target, override=override))
            return tuple([self._compiled(linear, device) for linear in linears])

        search = Search(body, kernel, backend, compile_, forced)
        found, is_old = search.found()
        if settings.debug_level() >= 2:
            name = search.name or kernel_name(self.linears(body, device, forced)[-1])
            say(found.line(name, settings.beam_width(), is_old))
        return found.schedule

    def _target(self, device: str) -> Target:
        """The machine, as what is asked for lets it be used."""
        return self._backend(device).target.as_asked(*settings.asked_of_machine())

    def _compiled(self, linear: UOp, device: str, background: Background | None = None) -> Kernel:
        backend = self._backend(device)
        slots = slots_of(linear)
        source = self._emit(with_dense_slots(linear, slots), device)
        names = {n.arg[0]: n.arg[2] for n in linear.src if n.op is PARAM and len(n.arg) == 3}
        size = written_parameter(linear).arg[1]
        compiled = (
            backend.compile(source) if background is None else background.compile(backend, source)
        )
        return Kernel(source, compiled, backend, slots, size, names)


def _around_choices(stages: Sequence[Stage]) -> tuple[Sequence[Stage], Sequence[Stage]]:
    """The stages before and after the first choice; all are before it where there is none."""
    steps = [stage.step for stage in stages]
    choices = [k for k, x in enumerate(steps) if isinstance(x, Tactic) and x.has_override]
    first = choices[0] if choices else len(stages)
    return stages[:first], stages[first:]


def _settings() -> tuple[Any, ...]:
    """What of the environment changes how a graph is compiled."""
    return _settings_of(settings.stored(_READ_BY_STAGES))


@functools.lru_cache(maxsize=64)
def _settings_of(stored: tuple[Any, ...]) -> tuple[Any, ...]:
    """The settings of an environment that stores this; reading them takes longer than a launch."""
    return (
        settings.wants_no_rules(),
        settings.wants_plain_loops(),
        settings.proves_kernels(),
        settings.checks_values(),
        settings.fastmath(),
        settings.flushes_denormals(),
        settings.wants_approximate_functions(),
        settings.choices_text(),
        settings.schedule_text(),
        settings.beam_width(),
        settings.beam_seconds() if settings.beam_width() else 0,
    )
