"""Small runs that were done before, done again: the plan is there, and memory, nodes and launch of results that nobody holds.

Owns: which runs are kept, and their results. Does not own: what a graph is like (likeness.py), how a graph is run the first
time, and when it may be run so (realize.py), runs that write over an input (known_writes.py).

A kept run of another kind writes over no input: for results of some megabytes that would save little. It may copy what the host gives, as a number.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from proofgrad.core.compile.passes.memory import changed_in_part
from proofgrad.core.compile.plan.bounded_cache import Newest
from proofgrad.core.ir.op_names import APPLY, BUFFER
from proofgrad.core.ir.shapes import elements, is_plain
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.runtime.counters import GlobalCounters
from proofgrad.core.tensor.runtime.device import HOST
from proofgrad.core.tensor.runtime.execute import allocate, execute, is_watched, memory_of_variables
from proofgrad.core.tensor.runtime.kept_program import KeptProgram
from proofgrad.core.tensor.runtime.kept_run import KeptRun, Ran
from proofgrad.core.tensor.runtime.known_writes import KnownWrite
from proofgrad.core.tensor.runtime.likeness import Likeness
from proofgrad.core.tensor.runtime.owners import is_result_free
from proofgrad.core.tensor.runtime.result_pool import SPARES, Spare
from proofgrad.core.tensor.runtime.runs_of_a_kind import RunsOfAKind

if TYPE_CHECKING:
    from proofgrad.core.compile.compiler import Compiler
    from proofgrad.core.compile.machine.target import Launch
    from proofgrad.core.compile.plan.checks import ValueCheck

MOST_KINDS = 512  # of runs that are kept, by what the last node of a graph is
MOST_NODES = 1 << 16  # of a graph, as of a loop over a thousand steps
# Of a result: for more of them a kernel takes many times as long as the way to it, and spares would hold much memory.
RESULT_BYTES = 1 << 23
SMALL_BYTES = 1 << 16  # of what is given, which is copied
# That a kernel reads and writes, in the mean, where all run in one launch: for more of them it takes many times as long as the way to it from Python.
BYTES_OF_A_KERNEL = 1 << 20
# Of all results that were made, until all are let go; of a program's memory between, which is not kept if there is more.
HELD_BYTES = 1 << 25
# Values of graphs and of what is to be kept below them; the graphs that the plan has; the nodes of the latter.
Again = tuple[list[UOp], tuple[UOp, ...], Sequence[UOp]]


class _Result(Spare):
    """A result, and the launch that fills it; None where a run is more than one kernel."""

    __slots__ = ("launch",)

    def __init__(self, node: UOp, handle: Any, launch: Callable[[list[Any]], None] | None) -> None:
        super().__init__(node, handle)
        self.launch = launch


class _Pool:
    """What one result of a run was, to be used again once nobody holds it."""

    __slots__ = ("_info", "_launch", "_make", "_results", "_shape")

    def __init__(self, ran: Ran, number: int, launch: Launch | None, spares: int) -> None:
        self._info = ran.plan.made[ran.plan.results[number] - ran.plan.inputs]
        self._make, self._shape, self._launch = ran.make, ran.asked.src[number].shape, launch
        self._results: deque[_Result] = deque(maxlen=spares)

    def filled(self, read: list[Any]) -> UOp:
        """The node of one that nobody has, filled by its launch of this memory."""
        result = self.take()
        result.launch(read)  # type: ignore[misc]  # runs of one kernel alone ask for it
        return self.keep(result)

    def take(self) -> _Result:
        """One that nobody has: no other thread either, for it is in no list until it is held."""
        results = self._results
        for _ in range(len(results)):
            try:
                result = results.popleft()
            except IndexError:  # other threads have them all
                break
            if is_result_free(result):
                return result
            results.append(result)
        return self._new_result()  # in place of the oldest

    def let_go_held(self) -> None:
        """Keep no result that somebody has, who has it alone then."""
        results = self._results
        for _ in range(len(results)):
            try:
                result = results.popleft()
            except IndexError:
                break
            if is_result_free(result):
                results.append(result)

    def _new_result(self) -> _Result:
        RUNS.count(self._info.nbytes)
        handle = allocate(self._info)
        launch = None if self._launch is None else _bound(self._launch, handle)
        return _Result(self._make(self._info, self._shape, handle), handle, launch)

    def keep(self, result: _Result) -> UOp:
        """From here on its node is held."""
        node = result.node
        self._results.append(result)
        return node

    def let_go(self) -> None:
        """Keep no result."""
        self._results.clear()

    def unused_bytes(self) -> int:
        """The memory of results that nobody has."""
        return self._info.nbytes * [*map(is_result_free, list(self._results))].count(True)


class KnownRun(KeptRun):
    """One plan, for graphs that are alike, which makes its results."""

    __slots__ = (
        "_count", "_flops", "_launch", "_nbytes", "_pools", "_programs", "_read",
    )  # fmt: skip

    def __init__(self, ran: Ran, likeness: Likeness) -> None:
        plan = ran.plan
        super().__init__(ran, likeness)
        kernels = [step.kernel for step in plan.steps if step.kernel is not None]
        is_told = is_watched()  # of each kernel: then they run one by one
        reads_parts = any([step.offsets for step in plan.steps])
        is_one = len(plan.steps) == 1 == len(kernels) and not is_told and not reads_parts
        self._launch: Launch | None = kernels[0].ready() if is_one else None
        # What is made of constants, or of data, is most often written to, in place, which needs memory that nothing else holds.
        spares = 0 if all([one == HOST for one in self.where]) else SPARES
        self._pools = [_Pool(ran, k, self._launch, spares) for k in range(len(plan.results))]
        self._nbytes = sum([step.nbytes for step in plan.steps if step.kernel is not None])
        is_small = (
            0 < len(kernels) and self._nbytes <= BYTES_OF_A_KERNEL * len(kernels) and not is_one
        )
        self._programs: deque[KeptProgram] | None = None  # that nobody runs now
        if is_small and not is_told and not plan.variables:
            self._programs = deque(maxlen=SPARES)
        self._read = plan.steps[0].slots[1:]
        self._count, self._flops = len(kernels), sum([k.source.cost_flops for k in kernels])

    def run(
        self,
        given: Sequence[Any],
        values: Mapping[str, int],
        check: ValueCheck | None = None,
        followed: Any = None,
    ) -> list[UOp]:
        """The nodes of the values, for inputs in this memory and these positions. `followed` is told of them, where there is a `check`."""
        if self._launch is not None and check is None:
            if values:
                given = [*given, None, *memory_of_variables(self.plan, values)]
            read: list[Any] = []
            for slot in self._read:
                read.append(given[slot])
            node = self._pools[0].filled(read)
            self._count_it()
            return [node]
        results = [pool.take() for pool in self._pools]
        if check is not None:
            for result in results:
                check.written_anew(result.node)
            into = [result.handle for result in results]
            followed.end(execute(self.plan, given, self.where, values, into=into))
        elif (programs := self._programs) is not None:
            self._run_program(programs, given, [result.handle for result in results])
            self._count_it()
        else:
            into = [result.handle for result in results]
            execute(self.plan, given, self.where, values, into=into)
        return [pool.keep(result) for pool, result in zip(self._pools, results)]

    def _count_it(self) -> None:
        counters = GlobalCounters
        counters.kernel_count += self._count
        counters.global_ops += self._flops
        counters.global_mem += self._nbytes

    def _run_program(
        self, programs: deque[KeptProgram], given: Sequence[Any], into: Sequence[Any]
    ) -> None:
        """One that no other thread runs, for it is in no list until it has run."""
        try:
            program = programs.popleft()
        except IndexError:
            program = KeptProgram(self.plan, self.where)
            RUNS.count(program.nbytes)
        program.run(given, into)
        if program.nbytes > HELD_BYTES:
            self._programs = None
        else:
            programs.append(program)

    def let_go_held(self) -> None:
        """Keep no result that somebody has."""
        for pool in self._pools:
            pool.let_go_held()

    def let_go(self) -> None:
        """Keep no result, and no memory between."""
        for pool in self._pools:
            pool.let_go()
        programs = self._programs
        if programs is not None:
            programs.clear()

    def unused_bytes(self) -> int:
        """The memory of results that nobody has."""
        return sum([pool.unused_bytes() for pool in self._pools])


def _bound(launch: Launch, handle: Any) -> Callable[[list[Any]], None]:
    """The launch that writes to this memory, as a function of the memory that it reads."""
    bind = getattr(launch, "bound", None)
    if bind is not None:
        found: Callable[[list[Any]], None] = bind(handle)
        return found
    return lambda read: launch([handle, *read])


def _kind(roots: Sequence[UOp], device: str) -> tuple[Any, ...]:
    """What runs have in common among which a graph is looked for, by its last nodes: there are few of a kind."""
    root = roots[-1]
    body = root.arg if root.op is APPLY else None
    return len(roots), root.op, root.dtype, root.shape, device, body


class _Runs:
    """All that are kept."""

    def __init__(self) -> None:
        self._of_kind: Newest[tuple[Any, ...], RunsOfAKind[KnownRun | KnownWrite]] = Newest(
            MOST_KINDS, lambda _, kind: kind.most_nodes()
        )
        self._made_bytes = 0

    def again(
        self,
        roots: Sequence[UOp],
        device: str,
        compiler: Compiler,
        memory_of: Callable[[UOp], Any],
        computed: Mapping[Any, UOp],
        draws: Callable[[Sequence[UOp], Sequence[UOp]], bool],
        is_alone: bool = False,
    ) -> Again | None:
        """The values of graphs, and the graphs that the plan has; None if no run is known for them.

        `memory_of` a buffer, or of a part of one; `computed`: weak references to nodes, and the buffers that stand for them. `draws`: whether
        a run of graphs draws numbers that another Tensor is to keep. `is_alone`: nobody but the caller holds the one root.
        """
        kind = self._of_kind.get(_kind(roots, device))
        if kind is None:
            return None
        is_one = len(kind.runs) == 1
        for run in kind.runs if is_one else kind.likely():
            alike = run.likeness.found(roots, computed)
            if alike is None or not run.is_now(compiler.epoch):
                continue
            if isinstance(run, KnownWrite):
                node = run.run(alike, memory_of, compiler) if is_alone else None
                if node is not None:
                    return [node], run.roots, ()
                continue
            inputs = run.likeness.buffers_of(alike)
            if inputs is None or (run.copies and draws(roots, inputs)):
                continue
            if not is_one:
                kind.note(run)
            given = run.likeness.memory(inputs, memory_of)
            check = compiler.checks() if run.is_asked else None
            others = run.likeness.others_of(alike) if run.likeness.others else ()
            _, _, values = alike
            if check is None:
                return run.run(given, values), run.roots, others
            buffers = run.likeness.with_buffers(inputs)
            check.numbers([*roots, *others], run.graph, buffers, given, values)
            with check.launches(run.plan, given) as followed:
                return run.run(given, values, check, followed), run.roots, others
        return None

    def may_be_kept(self, asked: UOp) -> bool:
        """Whether a run of this numbered graph is small enough: then it writes over no input, not even one that nobody holds."""
        device, nodes = asked.arg, asked.toposort()
        sizes = [elements(root.shape) * root.dtype.itemsize for root in asked.src]
        if not all([0 < size <= RESULT_BYTES for size in sizes]) or len(nodes) > MOST_NODES:
            return False
        if not {device, HOST}.issuperset([b.src[1].arg for b in nodes if b.op is BUFFER]):
            return False
        return all([is_plain(root.shape) for root in asked.src])

    def keep(self, ran: Ran) -> None:
        """Keep how values were computed, if that is to be kept."""
        plan, roots, device = ran.plan, ran.asked.src, ran.graph.arg
        slots = set(plan.results)
        if not plan.steps or len(slots) < len(roots):
            return
        if min(slots) < plan.inputs:
            self._keep_write(ran)
            return
        if {device} != {made.device for made in plan.made} or not self.may_be_kept(ran.asked):
            return
        steps = plan.steps
        if len(steps) == 1 and any([plan.inputs <= s < plan.inputs + len(plan.made) for s in steps[0].slots[1:]]):  # fmt: skip
            return
        if ran.parts and any([changed_in_part(root) is not None for root in roots]):
            return  # which is better done in place
        self._keep(ran, KnownRun)

    def _keep_write(self, ran: Ran) -> None:
        """Keep how a part of a memory was written to, if it was done in place by kernels that make nothing else."""
        plan, roots = ran.plan, ran.asked.src
        slot, *more = plan.results
        is_in_place = not more and slot < plan.inputs and changed_in_part(roots[0]) is not None
        is_plain_run = all([s.kernel is not None and s.slots[0] == slot for s in plan.steps])
        if is_in_place and is_plain_run and plan.steps and not is_watched():
            self._keep(ran, KnownWrite)

    def _keep(self, ran: Ran, kind: type[KnownRun] | type[KnownWrite]) -> None:
        roots, others = ran.asked.src[: ran.asked_for], ran.asked.src[ran.asked_for :]
        key = _kind(roots, ran.graph.arg)
        known = self._of_kind.get(key) or RunsOfAKind()
        is_kept = [
            run.asked is ran.asked and run.roots == roots and type(run) is kind
            for run in known.runs
        ]
        if any([is_it and run.is_now(ran.epoch) for is_it, run in zip(is_kept, known.runs)]):
            return
        likeness = Likeness(roots, ran.parts, ran.numbers, others)
        # Other variables have values, and other inputs memory, that no graph like this one shows.
        is_all = len(likeness.devices) == ran.plan.inputs and ran.variables <= likeness.names
        if is_all and len(likeness.others) == len(others):
            known.add(kind(ran, likeness))
            self._of_kind[key] = known

    def count(self, nbytes: int) -> None:
        """A result of so many bytes is made. When all together were too many, those that nobody has are given up."""
        self._made_bytes += nbytes
        if self._made_bytes > HELD_BYTES:
            self._made_bytes = nbytes
            for run in self._all():
                run.let_go()

    def let_go_held(self) -> None:
        """Keep no result that somebody has: a plan may write over it then, if nobody else has it."""
        for run in self._all():
            run.let_go_held()

    def unused_bytes(self) -> Counter[str]:
        """The memory of results that nobody has, of each device: it is free."""
        found: Counter[str] = Counter()
        for run in self._all():
            found[run.graph.arg] += run.unused_bytes()
        return found

    def _all(self) -> list[KnownRun]:
        kept = [run for kind in list(self._of_kind.values()) for run in kind.runs]
        return [run for run in kept if isinstance(run, KnownRun)]


RUNS = _Runs()
