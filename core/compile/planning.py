"""A KernelGraph as a plan: a slot for each buffer and variable, a launch for each kernel.

Owns: which slot a buffer has, the tables that the kernels of one call fill for each other, the order of launches. Does not own: the
kernels (compiler.py), when memory is free again (plan/plan.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from proofgrad.core.compile.passes.memory import first_element, memory_below
from proofgrad.core.compile.plan.plan import BufferInfo, Kernel, Plan, Step, peak_bytes, with_frees
from proofgrad.core.ir.op_names import COPY
from proofgrad.core.ir.shapes import elements
from proofgrad.core.ir.uop import UOp
from proofgrad.core.messages import Progress


def plan_of(
    graph: UOp, kernels_of: Callable[[UOp, str], tuple[Kernel, ...]], progress: Progress | None
) -> tuple[Plan, list[tuple[Kernel, ...]]]:
    """The plan of a KernelGraph, and the kernels of each of its calls: none of a copy.

    `kernels_of` a body, on a device: those that fill its tables first.
    """
    launches, compiled = _Launches(graph), []
    for number, call in enumerate(graph.src):
        if progress is not None:
            progress.done(number)
        body, is_copy = call.src[0], call.src[0].src[0].op is COPY
        compiled.append(() if is_copy else kernels_of(body, call.arg.device))
        launches.add(call, compiled[-1])
    return launches.plan(), compiled


class _Launches:
    """The launches of a graph, call after call.

    Inputs have the first slots, then what the graph makes, then tables, and variables behind them all.
    """

    def __init__(self, graph: UOp) -> None:
        read = [memory_below(source) for call in graph.src for source in call.src[1:]]
        every = read + list(graph.arg)
        made = [buffer for buffer in dict.fromkeys(every) if _number(buffer) < 0]
        self._graph, self._inputs = graph, 1 + max([_number(buffer) for buffer in every] + [-1])
        self._slot_of = {buffer: self._inputs + k for k, buffer in enumerate(made)}
        self._infos = [_info(buffer) for buffer in made]
        self._variables: dict[tuple[str, str], int] = {}
        self._steps: list[Step] = []

    def add(self, call: UOp, kernels: tuple[Kernel, ...]) -> None:
        """Launch the kernels of a call one after the other; without any, copy."""
        sources, shape = call.src[1:], call.src[0].src[0].shape
        own = {
            k: (self._slot(memory_below(source)), _part(source)) for k, source in enumerate(sources)
        }
        if not kernels:
            slots = tuple([slot for slot, _ in own.values()])
            self._steps.append(Step(None, slots, (), own[0][1].nbytes, shape))
            return
        begins = {k: first_element(x) * x.dtype.itemsize for k, x in enumerate(sources)}
        tables = {0}  # what the kernels of this call have written
        done: set[int] = set()  # and what they have read: nothing is written to it any more
        for kernel in kernels:
            written = kernel.slots[0]
            if written not in tables:  # behind the buffers that kernels still read
                tables.add(written)
                table = BufferInfo(kernel.source.params[0], kernel.size, call.arg.device)
                own[written] = self._inputs + len(self._infos), table
                self._infos.append(table)
            elif written and (written in done or own[written][1].size != kernel.size):
                raise AssertionError(f"two tables of one kernel in slot {written}")
            done.update(set(kernel.slots).difference([written]))
            nbytes = sum([own[k][1].nbytes for k in kernel.slots if k in own])
            slots = tuple([own[k][0] if k in own else self._variable(kernel, k, call.arg.device)
                           for k in kernel.slots])  # fmt: skip
            offsets = tuple([begins.get(k, 0) for k in kernel.slots])
            offsets = offsets if any(offsets) else ()
            self._steps.append(Step(kernel, slots, (), nbytes, shape, call.arg.origin, offsets))

    def plan(self) -> Plan:
        """All launches, with the slots of variables, and with what is free after each."""
        inputs, infos, variables = self._inputs, self._infos, self._variables
        results = tuple([self._slot(b) for b in self._graph.arg])
        behind = inputs + len(infos)
        launches = [
            replace(step, slots=tuple([behind - 1 - k if k < 0 else k for k in step.slots]))
            for step in self._steps
        ]
        steps = with_frees(launches, inputs, {*results, *range(behind, behind + len(variables))})
        reused = {_number(b): _info(b) for b in self._graph.arg if self._slot(b) < inputs}
        peak = peak_bytes(inputs, infos, steps)
        return Plan(inputs, tuple(infos), results, steps, reused, peak, tuple(variables))

    def _slot(self, buffer: UOp) -> int:
        return self._slot_of[buffer] if buffer in self._slot_of else _number(buffer)

    def _variable(self, kernel: Kernel, slot: int, device: str) -> int:
        """A negative slot, until it is known how many buffers there are."""
        key = (kernel.variables[slot], device)
        return self._variables.setdefault(key, -1 - len(self._variables))


def _number(buffer: UOp) -> int:
    number: int = buffer.src[0].arg
    return number


def _info(buffer: UOp) -> BufferInfo:
    return BufferInfo(buffer.dtype, buffer.arg, buffer.src[1].arg)


def _part(source: UOp) -> BufferInfo:
    """What a call reads of a buffer, or writes."""
    buffer = memory_below(source)
    return BufferInfo(buffer.dtype, elements(source.shape), buffer.src[1].arg)
