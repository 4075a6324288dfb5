"""Kernels that a rule was written for, through the compiler's own stages and a machine.

Owns: a kernel around an instance of a rule's left side, whether the rule fires in it among all the
others, its elements on a machine and by brute force. Does not own: instances (instances.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import Any

from instances import Instance
from kernel_interpreter import free_loops, run_kernel
from linear_kernels import pack, unpack
from random_terms import same

from proofgrad import Device
from proofgrad.core.compile.lowering.parameters import with_dense_slots
from proofgrad.core.compile.passes.stages import RuleSets, run_stages
from proofgrad.core.ir.dtypes import DType, as_constant, dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.shapes import ShapeError
from proofgrad.core.ir.uop import UOp
from proofgrad.core.rewrite.engine import Rewriter
from proofgrad.core.rewrite.journal import Journal
from proofgrad.core.rewrite.rule import Node, Rule
from proofgrad.core.tensor.runtime.realize import compiler
from proofgrad.rules.pipeline import KERNEL_STAGES
from proofgrad.verify.dsl.parser import read_example

ROWS = 24  # of data, each element of which is another choice of values
MOST_REDUCED = 5  # turns of a loop of an instance
MACHINE = "CPU"
OUT = 0
_FIRST_SLOT = 1


class Silent(Journal):
    """Counts nothing: the search for an instance is no use of a rule."""

    def record(self, full_name: str, proven: bool) -> None:
        """Nothing."""


class Witness(Journal):
    """A journal that also says whether one rule fired, with evidence."""

    def __init__(self, wanted: str) -> None:
        super().__init__()
        self.wanted = wanted

    @property
    def fired(self) -> bool:
        return self.applied[self.wanted] > 0 and self.unproven == 0


class RowInstance(Instance):
    """An instance whose leaves are read from the rows of buffers."""

    def __init__(self, rule: Rule, random: Random) -> None:
        super().__init__(rule, random)
        self.row = UOp.range(ROWS - MOST_REDUCED, 50)
        self._reduces = isinstance(rule.left, Node) and rule.left.op == Ops.REDUCE.name

    def _leaf(self, dtype: DType, number: int) -> UOp:
        if dtype is dtypes.index:
            return self._index(number)
        if dtype.is_bool and self.is_narrowed:
            return self._clause()
        if dtype.is_float and self.random.random() < 0.4:
            return self._load(dtypes.int8, number).cast(dtype)  # finite
        if dtype.is_int and dtype.bits > 8 and self.random.random() < 0.2:
            return self._load(dtypes.uint8, number).cast(dtype)  # not negative
        loaded = self._load(dtype, number)
        if dtype.is_int and self.random.random() < 0.5:
            return loaded % self.random.choice([1, 2, 3, 5]) + self.random.choice([0, 0, 1])
        return loaded

    def _position(self, dtype: DType) -> tuple[UOp, UOp]:
        memory = UOp(Ops.PARAM, dtype, (), (40, 9))
        if self.is_narrowed:
            return memory, self._within()
        return memory, self.random.choice([UOp.range(8, 41), UOp.range(4, 42) * 2 + 1])

    def _load(self, dtype: DType, number: int) -> UOp:
        memory = UOp(Ops.PARAM, dtype, (), (_FIRST_SLOT + number, ROWS))
        in_loop = self._reduces and self.random.random() < 0.5
        position = self.row + self.loops[0] if in_loop else self.row
        return UOp(Ops.LOAD, dtype, (UOp(Ops.INDEX, dtype, (memory, position)),))


@dataclass(frozen=True)
class RuleKernel:
    """A kernel that stores a term, in the Kernel form, and the data that it reads."""

    kernel: UOp
    data: dict[int, list[Any]]

    @property
    def out(self) -> UOp:
        return self.kernel.src[0].src[0].src[0]


def kernels_of(rule: Rule, attempts: int) -> Iterator[RuleKernel]:
    """Kernels around instances of the left side of `rule`, the same in every run."""
    random = Random(rule.full_name)
    for text in rule.examples:
        yield kernel_around(read_example(text)[0], random)
    for _ in range(attempts):
        try:
            node = RowInstance(rule, random).build(rule.left)
        except (OverflowError, ShapeError):
            continue
        yield kernel_around(node, random)


def kernel_around(term: UOp, random: Random) -> RuleKernel:
    """A kernel that stores `term` for every choice of its loops. Index terms are stored as int64."""
    if term.op is Ops.INDEX:
        term = UOp(Ops.LOAD, term.dtype, (term,))
    if term.dtype is dtypes.index:
        term = term.cast(dtypes.int64)
    position, size = UOp.index(0), 1
    for loop in sorted(free_loops(term), key=lambda r: r.arg[0]):
        position, size = position * loop.src[0].arg + loop, size * loop.src[0].arg
    out = UOp(Ops.PARAM, term.dtype, (), (OUT, size))
    store = UOp(Ops.STORE, dtypes.void, (UOp(Ops.INDEX, term.dtype, (out, position)), term))
    kernel = UOp.sink(store)
    inputs = [n for n in kernel.toposort() if n.op is Ops.PARAM and n.arg[0] != OUT]
    return RuleKernel(kernel, {n.arg[0]: _values(n, random) for n in inputs})


def _values(parameter: UOp, random: Random) -> list[Any]:
    return [_value(parameter.dtype, random) for _ in range(parameter.arg[1])]


def _value(dtype: DType, random: Random) -> Any:
    if dtype.is_bool:
        return random.random() < 0.5
    if dtypes.is_float(dtype):
        edges = [0.0, -0.0, 1.0, -1.0, 0.5, 3.0, float("inf"), float("-inf"), float("nan")]
        return as_constant(random.choice([*edges, random.uniform(-9, 9)]), dtype)
    assert dtype.lo is not None and dtype.hi is not None
    near = [k for k in (0, 1, 2, 3, -1, -2, 7) if dtype.lo <= k <= dtype.hi]
    return random.choice([*near, dtype.lo, dtype.hi, random.randint(dtype.lo, dtype.hi)])


def may_fire(rule: Rule, kernel: UOp) -> bool:
    """Whether it fires in the first stage that has its set: quicker, and not counted as use."""
    fired = []
    journal = Silent(lambda name, before, after: fired.append(name))
    Rewriter(_first_sets(rule.ruleset), _facts(), journal).rewrite(kernel)
    return rule.full_name in fired


@cache
def _facts() -> Any:
    return compiler().library.facts()


@cache
def _first_sets(ruleset: str) -> Any:
    names = next(
        stage.step.used(())
        for stage in KERNEL_STAGES
        if isinstance(stage.step, RuleSets) and ruleset in stage.step.used(())
    )
    return compiler().library.rules_of(names)


def to_linear(kernel: UOp, journal: Journal) -> UOp:
    """The kernel after the compiler's stages from Kernel to Linear, which count in `journal`."""
    library = compiler().library.with_journal(journal)
    return run_stages(KERNEL_STAGES[1:], kernel, library, Device[MACHINE].target)


def elements_on_machine(made: RuleKernel, linear: UOp) -> list[Any]:
    """What the compiled kernel stores."""
    backend = Device[MACHINE]
    slots = sorted({n.arg[0] for n in linear.src if n.op is Ops.PARAM})
    dense = with_dense_slots(linear, tuple(slots))
    launch = backend.load(backend.compile(backend.emit(dense, "kernel_0")))
    types = {n.arg[0]: n.dtype for n in made.kernel.toposort() if n.op is Ops.PARAM}
    contents = {slot: pack(values, types[slot]) for slot, values in made.data.items()}
    contents[OUT] = bytes(made.out.arg[1] * made.out.dtype.itemsize)
    handles = [backend.alloc(len(contents[slot])) for slot in slots]
    for slot, handle in zip(slots, handles):
        backend.copyin(handle, memoryview(contents[slot]))
    launch(handles)
    backend.synchronize()
    result = bytearray(contents[OUT])
    backend.copyout(memoryview(result), handles[slots.index(OUT)])
    return unpack(bytes(result), made.out.dtype)


def wrong_elements(made: RuleKernel, linear: UOp) -> list[str]:
    """Where the machine and brute force disagree, as text."""
    expected = run_kernel(made.kernel, dict(made.data))[OUT]
    pairs = enumerate(zip(elements_on_machine(made, linear), expected))
    return [f"element {k}: {got!r}, not {e!r}" for k, (got, e) in pairs if not same(got, e)]
