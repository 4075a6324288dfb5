"""The driver: from a graph of tensor nodes to launches, with a cache at each level.

Owns: plans (the launches that fill the roots of a graph) and their caches. Does not own: the stages
(rules/pipeline.py), the machines (backends), memory (core/tensor/realize.py).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from proofgrad.core import settings
from proofgrad.core.compile.names import kernel_name
from proofgrad.core.compile.stages import Library, Stage, run_stages
from proofgrad.core.compile.target import Backend, Binary, Launch, Source
from proofgrad.core.ir.dtypes import DType
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp
from proofgrad.core.rewrite.match import RuleSet


@dataclass(slots=True)
class Kernel:
    """A compiled kernel, launched with the buffers of `slots` of its body.

    It is loaded when first launched, so that kernels can be compiled for a machine that is not here.
    """

    source: Source
    binary: Binary
    backend: Backend
    slots: tuple[int, ...]
    loaded: Launch | None = None

    @property
    def name(self) -> str:
        return self.source.entry

    def launch(self, buffers: Sequence[Any]) -> None:
        """Run it. Raises: DeviceError where the machine is missing."""
        if self.loaded is None:
            self.loaded = self.backend.load(self.binary)
        self.loaded(buffers)


@dataclass(frozen=True, slots=True)
class Step:
    """One line of a plan: run a kernel (None: copy slot 1 to slot 0) on these slots."""

    kernel: Kernel | None
    slots: tuple[int, ...]
    free_after: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BufferInfo:
    """A buffer that a plan makes."""

    dtype: DType
    size: int
    device: str


@dataclass(frozen=True, slots=True)
class Plan:
    """Launches in order. Slots: the inputs, then the buffers that the plan makes."""

    inputs: int
    made: tuple[BufferInfo, ...]
    results: tuple[int, ...]
    steps: tuple[Step, ...]
    kernels: UOp  # the KernelGraph it is of


class KernelCheck(Protocol):
    """Looks at each kernel that is compiled while PROVE=1."""

    def __call__(self, name: str, body: UOp, trace: Sequence[tuple[Stage, UOp]]) -> None:
        """`trace`: the graph after each stage, from `body` to Linear. Raises if it is wrong."""
        ...

    def summary(self) -> str:
        """One line about all kernels so far."""
        ...


class Compiler:
    """Compiles graphs. One per process; holds every cache that is not on disk."""

    def __init__(
        self,
        graph_stages: Sequence[Stage],
        kernel_stages: Sequence[Stage],
        library: Callable[[], Library],
        backend: Callable[[str], Backend],
        make_check: Callable[[], KernelCheck] | None = None,
    ) -> None:
        self.graph_stages = graph_stages
        self.kernel_stages = kernel_stages
        self._load_library = library
        self._backend = backend
        self._make_check = make_check
        self._library: Library | None = None
        self._plans: dict[tuple[Any, ...], Plan] = {}
        self._kernels: dict[tuple[Any, ...], Kernel] = {}
        self.kernel_check: KernelCheck | None = None  # made when PROVE=1 first asks for it

    @property
    def library(self) -> Library:
        """The rules, loaded with their evidence when first needed."""
        if self._library is None:
            self._library = self._load_library()
        return self._library

    @property
    def kernels_compiled(self) -> int:
        return len(self._kernels)

    def use_rules(self, rules: RuleSet) -> None:
        """Let every rule stage use more rules; plans and kernels made before are dropped."""
        self.library.add(rules)
        self._plans.clear()
        self._kernels.clear()

    def plan(self, root: UOp) -> Plan:
        """The launches that fill the roots of `root`, a SINK whose inputs are numbered from 0."""
        key = (root, *_settings())
        known = self._plans.get(key)
        if known is None:
            known = self._plans[key] = self._make_plan(self.kernel_graph(root))
        return known

    def kernel_graph(self, root: UOp) -> UOp:
        """The KernelGraph of a TensorGraph."""
        return run_stages(self.graph_stages, root, self.library, observe=_observer("graph"))

    def _make_plan(self, graph: UOp) -> Plan:
        every = [buffer for call in graph.src for buffer in call.src[1:]] + list(graph.arg)
        made = [buffer for buffer in dict.fromkeys(every) if _number(buffer) < 0]
        inputs = 1 + max([_number(buffer) for buffer in every] + [-1])
        slot_of = {buffer: inputs + k for k, buffer in enumerate(made)}

        def slot(buffer: UOp) -> int:
            return slot_of[buffer] if buffer in slot_of else _number(buffer)

        keep = {slot(b) for b in graph.arg}
        calls = [(call, tuple([slot(b) for b in call.src[1:]])) for call in graph.src]
        last_use: dict[int, int] = {}
        for k, (_, slots) in enumerate(calls):
            last_use.update({s: k for s in slots if s >= inputs and s not in keep})
        free = {
            k: tuple([s for s, last in last_use.items() if last == k]) for k in range(len(calls))
        }
        steps = [self._step(call, slots, free[k]) for k, (call, slots) in enumerate(calls)]
        infos = tuple([BufferInfo(b.dtype, b.arg, b.src[1].arg) for b in made])
        results = tuple([slot(b) for b in graph.arg])
        return Plan(inputs, infos, results, tuple(steps), graph)

    def _step(self, call: UOp, slots: tuple[int, ...], free_after: tuple[int, ...]) -> Step:
        body = call.src[0]
        if body.src[0].op is Ops.COPY:
            return Step(None, slots, free_after)
        kernel = self.kernel(body, call.arg.device)
        return Step(kernel, tuple([slots[k] for k in kernel.slots]), free_after)

    def kernel(self, body: UOp, device: str) -> Kernel:
        """The compiled kernel of a body, a SINK over PARAMs."""
        key = (body, device, *_settings())
        known = self._kernels.get(key)
        if known is None:
            known = self._kernels[key] = self._compile(body, device)
        return known

    def linear(self, body: UOp, device: str) -> UOp:
        """The Linear form of a kernel body for a device."""
        target = self._backend(device).target
        return run_stages(self.kernel_stages, body, self.library, target, _observer("kernel"))

    def _checked(self, body: UOp, backend: Backend) -> UOp | None:
        """The Linear form of a kernel body that the check has seen; None where there is no check."""
        if self.kernel_check is None:
            if self._make_check is None:
                return None
            self.kernel_check = self._make_check()
        trace: list[tuple[Stage, UOp]] = []
        shown = _observer("kernel")

        def observe(stage: Stage, root: UOp) -> None:
            trace.append((stage, root))
            if shown is not None:
                shown(stage, root)

        linear = run_stages(self.kernel_stages, body, self.library, backend.target, observe)
        self.kernel_check(kernel_name(linear), body, trace)
        return linear

    def source(self, body: UOp, device: str) -> Source:
        """The text of a kernel body for a device."""
        linear = self.linear(body, device)
        return self._emit(_with_dense_slots(linear, _slots(linear)), device)

    def _emit(self, linear: UOp, device: str) -> Source:
        source = self._backend(device).emit(linear, kernel_name(linear))
        return replace(source, program=linear)

    def _compile(self, body: UOp, device: str) -> Kernel:
        backend = self._backend(device)
        linear = self._checked(body, backend) if settings.proves_kernels() else None
        linear = self.linear(body, device) if linear is None else linear
        slots = _slots(linear)
        source = self._emit(_with_dense_slots(linear, slots), device)
        if settings.debug_level() >= 3:
            _print(source.text)
        return Kernel(source, backend.compile(source), backend, slots)


def _settings() -> tuple[Any, ...]:
    """What of the environment changes how a graph is compiled."""
    return settings.wants_plain_loops(), settings.proves_kernels(), settings.fastmath()


def _slots(linear: UOp) -> tuple[int, ...]:
    """The parameters that a kernel still uses: simplification may have removed some."""
    return tuple(sorted({n.arg[0] for n in linear.src if n.op is Ops.PARAM}))


def _with_dense_slots(linear: UOp, slots: tuple[int, ...]) -> UOp:
    """The parameters numbered 0, 1, ... without gaps."""
    parameters = [n for n in linear.src if n.op is Ops.PARAM]
    changes = {n: n.replace(arg=(slots.index(n.arg[0]), n.arg[1])) for n in parameters}
    return linear.substitute({old: new for old, new in changes.items() if old is not new})


def _number(buffer: UOp) -> int:
    number: int = buffer.src[0].arg
    return number


def _observer(what: str) -> Callable[[Stage, UOp], None] | None:
    """Prints each stage's graph with DEBUG=4."""
    if settings.debug_level() < 4:
        return None

    def observe(stage: Stage, root: UOp) -> None:
        _print(f"--- {what}: {stage.name} -> {stage.makes.value}\n{root!r}")

    return observe


def _print(text: Any) -> None:
    print(text, file=sys.stderr)
