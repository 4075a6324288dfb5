"""PROVE=1: the kernels of a small network are proven; an error planted in any procedure is found."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from inspect import signature
from math import prod
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from programs import Program, programs
from tactics import (
    choose_index_width,
    nest_of,
    on_nests,
    reductions_to_accumulators,
    share_out_work_items,
    use_local_buffers,
)

from proofgrad import Context, Tensor, demo
from proofgrad.core.compile.compiler import KernelCheck
from proofgrad.core.compile.lowering import lower
from proofgrad.core.compile.lowering.linearize import linearize
from proofgrad.core.compile.lowering.lower import lower_movement
from proofgrad.core.compile.machine.target import Target
from proofgrad.core.compile.nests.loops import fresh_number, output_loops, size_of
from proofgrad.core.compile.passes.stages import Procedure, Stage, run_stages
from proofgrad.core.compile.plan.known_kernels import KnownKernels
from proofgrad.core.compile.steps import lanes
from proofgrad.core.compile.steps.bijection import NewLoop, exchanged
from proofgrad.core.compile.tactics import axes
from proofgrad.core.compile.tactics import coalesce as merging
from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import AxisRole, UOp, toposort
from proofgrad.core.tensor.runtime.realize import compile_only, compiler
from proofgrad.rules.pipeline import KERNEL_STAGES
from proofgrad.verify.kernels.match import Matcher
from proofgrad.verify.kernels.proof import Evidence, KernelProver, ProofError, prove_kernel
from proofgrad.verify.kernels.questions import Questions

CPU = Target("test-cpu", vector_bytes=16, threads=2)
GPU = Target("test-gpu", work_items=True)
PLAIN = Target("test-plain")
ROOM = Target("test-room", vector_bytes=16, threads=2, scratch_bytes=1 << 12)


class Recorder:
    """A check that keeps the bodies of kernels."""

    def __init__(self) -> None:
        self.bodies: list[UOp] = []

    def __call__(self, name: str, body: UOp, trace: Any) -> None:
        self.bodies.append(body)

    def summary(self) -> str:
        return f"{len(self.bodies)} kernels"


def data(*shape: int) -> Tensor:
    return Tensor([0.5] * prod(shape)).reshape(shape)


def network() -> Tensor:
    """Convolution, pooling, matrix product, softmax."""
    image, weight = data(2, 3, 8, 8), data(4, 3, 3, 3)
    pooled = image.conv2d(weight, padding=1).relu().max_pool2d().contiguous()
    rows = pooled.reshape(2, 64).flip(1) @ data(64, 10)
    return rows.softmax().pad(((0, 0), (1, 2)))


def compile_with(check: KernelCheck, value: Tensor, patch: pytest.MonkeyPatch) -> None:
    """Compile the kernels of `value` anew, and let `check` see them, and nothing else."""
    patch.setattr(compiler(), "checks", lambda: None)
    patch.setattr(compiler(), "kernel_check", check)
    patch.setattr(compiler(), "_kernels", KnownKernels(99))
    patch.setattr(compiler(), "_plans", {})
    with Context(PROVE=1), compile_only():
        value.realize()


@pytest.fixture(scope="module")
def bodies() -> Iterator[list[UOp]]:
    recorder = Recorder()
    with pytest.MonkeyPatch.context() as patch:
        compile_with(recorder, network(), patch)
        compile_with(recorder, Tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]) + 1, patch)
        compile_with(recorder, data(6, 20).softmax(), patch)
        yield recorder.bodies


def stages_with(stage: str, function: Callable[..., UOp] | None) -> tuple[Stage, ...]:
    """The stages of the compiler, one of them with another procedure."""
    if function is None:
        return KERNEL_STAGES
    old = next(s for s in KERNEL_STAGES if s.name == stage)
    asked = tuple(signature(function).parameters)[1:]
    takes = tuple(["facts" if name == "bounds" else name for name in asked])
    named = {"computes": old.step.computes} if isinstance(old.step, Procedure) else {}
    new = replace(old, step=Procedure(function, takes, **named))
    return tuple([new if s is old else s for s in KERNEL_STAGES])


def prove(body: UOp, target: Target, stages: tuple[Stage, ...] = KERNEL_STAGES) -> Evidence:
    trace: list[tuple[Stage, UOp]] = []
    run_stages(
        stages, body, compiler().library, target, lambda stage, root, _: trace.append((stage, root))
    )
    return prove_kernel("test", body, trace)


def planted(
    bodies: list[UOp], target: Target, stage: str, function: Callable[..., UOp] | None = None
) -> str:
    """What is said of the first kernel that the broken stage changes for the worse."""
    for body in bodies:
        try:
            prove(body, target, stages_with(stage, function))
        except ProofError as error:
            assert error.stage == stage, error
            return error.reason
    raise AssertionError(f"an error in stage {stage!r} was not found")


# -- what is right is proven --------------------------------------------------------------------


def test_a_number_is_never_equal_to_a_truth() -> None:
    position = UOp(
        Ops.INDEX, dtypes.int32, (UOp(Ops.PARAM, dtypes.int32, (), (1, 4)), UOp.index(0))
    )
    number = UOp(Ops.LOAD, dtypes.int32, (position,))
    assert Matcher(Questions()).value(number, number < 3) is not None


@pytest.mark.parametrize("target", [CPU, GPU, PLAIN, ROOM], ids=lambda t: t.name)
@pytest.mark.parametrize("plain_loops", [0, 1], ids=["optimised", "NOOPT"])
def test_kernels_of_a_network_are_proven(
    bodies: list[UOp], target: Target, plain_loops: int
) -> None:
    assert len(bodies) >= 4
    with Context(NOOPT=plain_loops):
        for body in bodies:
            count = prove(body, target).count
            assert count.unknown == 0
            assert count.by_solver + count.by_enumeration >= 10


def test_prove_says_what_was_shown_of_each_kernel(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    prover = KernelProver()
    compile_with(prover, (data(6, 5) + 1.0).sum(1), monkeypatch)
    assert "obligations" in capsys.readouterr().err
    assert prover.total.kernels >= 1 and "none unknown" in prover.summary()


def test_the_demo_ends_with_the_proofs_of_its_kernels() -> None:
    outcome = demo.Outcome(0.9, 1.0, [0.1], 3, 3, kernel_proofs="3 kernels, 40 obligations")
    assert demo.show(outcome).endswith("kernels proved      3 kernels, 40 obligations")
    assert "kernels proved" not in demo.show(replace(outcome, kernel_proofs=None))


# -- what is wrong is found ---------------------------------------------------------------------


def _moved(kernel: UOp, op: Ops) -> UOp:
    """`kernel` with the index of its last access of a kind (LOAD or STORE) one too high."""
    position = [n for n in toposort((kernel,)) if n.op is op][-1].src[0]
    return kernel.substitute(
        {position: position.replace(src=(position.src[0], position.src[1] + 1))}
    )


@pytest.mark.parametrize("op", [Ops.LOAD, Ops.STORE])
def test_wrong_index_of_lower_movement_is_found(bodies: list[UOp], op: Ops) -> None:
    reason = planted(
        bodies, CPU, "movement to index terms", lambda body: _moved(lower_movement(body), op)
    )
    assert "differs at" in reason


@pytest.mark.parametrize(
    "op, wrong",
    [
        (Ops.FLIP, lambda node, index: tuple([i * -1 + n for i, n in zip(index, node.shape)])),
        (Ops.SKEW, lambda node, index: lower._skew(node, (index[0] + 1, *index[1:]))),
        (Ops.PAD, lambda node, index: tuple([i + -b + 1 for i, (b, _) in zip(index, node.arg)])),
    ],
    ids=["FLIP", "SKEW", "PAD"],
)
def test_wrong_meaning_of_a_movement_is_found(
    bodies: list[UOp], monkeypatch: pytest.MonkeyPatch, op: Ops, wrong: Callable[..., Any]
) -> None:
    monkeypatch.setitem(lower.SOURCE_INDEX, op, wrong)
    assert planted(bodies, CPU, "movement to index terms")


def test_mask_of_a_pad_that_is_too_wide_is_found(
    bodies: list[UOp], monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_wide(node: UOp, index: Any) -> UOp | None:
        if node.op is not Ops.PAD:
            return right(node, index)
        inner, sizes = lower._pad(node, index), node.src[0].shape
        return lower._all([c for i, n in zip(inner, sizes) for c in (~(i < 0), i < n + 1)])

    right = lower._valid
    monkeypatch.setattr(lower, "_valid", too_wide)
    assert "PAD" in planted(bodies, CPU, "movement to index terms")


@pytest.mark.parametrize("otherwise", [0, 1])
def test_padding_by_nothing_leaves_a_choice_as_it_is(otherwise: int) -> None:
    x = UOp(Ops.PARAM, dtypes.int32, (), (1, 4))
    one = UOp(Ops.RESHAPE, x.dtype, (x.const_like(otherwise),), (1,))
    number = UOp(Ops.EXPAND, x.dtype, (one,), (4,))
    chosen = (x < number).where(x, number)
    value = UOp(Ops.PAD, x.dtype, (chosen,), ((0, 0),))
    assert prove(UOp.sink(value), CPU).count.unknown == 0


@pytest.mark.parametrize("short", ["size", "factor"])
def test_wrong_merge_of_loops_is_found(
    bodies: list[UOp], monkeypatch: pytest.MonkeyPatch, short: str
) -> None:
    def wrong(kernel: UOp, outer: UOp, inner: UOp) -> UOp:
        total = size_of(outer) * size_of(inner)
        both = UOp.range(total - (short == "size"), outer.arg[0], outer.arg[1])
        counter = both + 1 if short == "factor" else both
        return exchanged(kernel, {outer: UOp.index(0), inner: counter}, [both], in_order=True)

    monkeypatch.setattr(merging, "merge", on_nests(merging.merge, wrong))
    assert planted(bodies, CPU, "merge loops")


def test_split_that_drops_the_rest_is_found(
    bodies: list[UOp], monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(kernel: UOp, loop: UOp, sizes: tuple[int, ...], made: tuple[NewLoop, ...]) -> UOp:
        size = size_of(loop)
        short = loop.replace(src=(UOp.index(size - size % prod(sizes)),))
        return right(nest_of(kernel.substitute({loop: short})), short, sizes, made).graph

    right = axes.split
    monkeypatch.setattr(axes, "split", on_nests(axes.split, wrong))
    assert planted(bodies, CPU, "choose axes")


def test_split_with_a_wrong_stride_is_found(
    bodies: list[UOp], monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(kernel: UOp, loop: UOp, sizes: tuple[int], made: tuple[NewLoop, NewLoop]) -> UOp:
        (size,) = sizes
        outer = UOp.range(-(-size_of(loop) // size), made[0].number, made[0].role)
        inner = UOp.range(size, made[1].number, made[1].role)
        return exchanged(kernel, {loop: outer * (size - 1) + inner}, [outer, inner], in_order=True)

    monkeypatch.setattr(axes, "split", on_nests(axes.split, wrong))
    assert planted(bodies, CPU, "choose axes")


@pytest.mark.parametrize("first, missing", [(0, 1), (1, 0)], ids=["short", "late"])
def test_wrong_copies_of_unroll_are_found(bodies: list[UOp], first: int, missing: int) -> None:
    def wrong(kernel: UOp) -> UOp:
        for loop in [x for x in output_loops(kernel) if x.arg[1] is AxisRole.UPCAST]:
            values = range(first, first + size_of(loop) - missing)
            stores = [s.substitute({loop: UOp.index(k)}) for s in kernel.src for k in values]
            kernel = UOp.sink(*stores)
        return kernel

    assert planted(bodies, CPU, "unroll", wrong)


def _elsewhere(position: UOp) -> UOp:
    """The position that is asked for with each product of a loop and a number as the loop's first iteration."""
    products = [n for n in position.toposort() if n.op is Ops.MUL]
    return position.substitute({n: UOp.const(n.dtype, 0) for n in products})


@pytest.mark.parametrize(
    "stage, dtype", [("promote small floats", "float32"), ("transcendentals", "int32")]
)
def test_stage_that_computes_some_values_anew_leaves_the_others_as_they_were(
    stage: str, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other loads are loads of a value before, too; nearly all blocks of many elements have the same largest one."""

    def wrong(program: UOp) -> UOp:
        loads = [n.src[0].src[1] for n in program.toposort() if n.op is Ops.LOAD]
        return program.substitute({n: _elsewhere(n) for n in loads})

    recorder = Recorder()
    compile_with(recorder, data(1 << 16).cast(dtype).realize().max(), monkeypatch)
    assert "the load of parameter" in planted(recorder.bodies, CPU, stage, wrong)


def test_width_that_is_too_small_is_found(bodies: list[UOp]) -> None:
    def wrong(kernel: UOp, target: Target, bounds: Any) -> UOp:
        return choose_index_width(kernel, replace(target, index_dtype=dtypes.int8), _Anything())

    reason = planted(bodies, PLAIN, "widths of index terms", wrong)
    assert "an index term leaves int8" in reason


class _Anything:
    """Bounds that find that everything fits."""

    def lo(self, node: UOp) -> int:
        return 0

    hi = lo


def test_gather_taken_for_a_contiguous_access_is_found(
    bodies: list[UOp], monkeypatch: pytest.MonkeyPatch
) -> None:
    right = lanes.coefficient
    monkeypatch.setattr(lanes, "coefficient", lambda term, loop: right(term, loop) and 1)
    image = data(8, 16)
    recorder = Recorder()
    compile_with(recorder, image.transpose(0, 1) + data(16, 8), monkeypatch)
    assert "load of parameter" in planted(recorder.bodies, CPU, "vectors")


def test_contiguous_access_that_starts_one_too_far_is_found(
    bodies: list[UOp], monkeypatch: pytest.MonkeyPatch
) -> None:
    right = lanes._in_first_lane
    monkeypatch.setattr(lanes, "_in_first_lane", lambda *terms: right(*terms) + 1)
    assert planted(bodies, CPU, "vectors")


def test_element_that_the_wrong_lanes_take_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """One load for all lanes, chosen by their masks: with the masks turned round, and without a fault."""
    recorder, right = Recorder(), lanes._chosen
    below = data(2, 1, 32).expand(2, 32, 32).tril() * data(32, 1)
    compile_with(recorder, below.sum(-1), monkeypatch)
    assert all(prove(body, CPU).count.unknown == 0 for body in recorder.bodies)

    def wrong(load: UOp, position: UOp) -> UOp:
        chosen = right(load, position)
        mask, element, zero = chosen.src
        return chosen.with_src((mask, zero, element))

    monkeypatch.setattr(lanes, "_chosen", wrong)
    assert planted(recorder.bodies, CPU, "vectors")


def _without(kernel: UOp, drop: Callable[[UOp], bool]) -> UOp:
    return UOp(Ops.LINEAR, dtypes.void, tuple([n for n in kernel.src if not drop(n)]))


def test_loop_dropped_by_linearize_is_found(bodies: list[UOp]) -> None:
    def wrong(program: UOp) -> UOp:
        linear = linearize(program)
        loops = [n for n in linear.src if n.op is Ops.RANGE]
        return _without(
            linear, lambda n: n in loops[:1] or (n.op is Ops.END and n.src[0] in loops[:1])
        )

    assert "loop" in planted(bodies, CPU, "linearize", wrong)
    assert "which is not open there" in planted(bodies, PLAIN, "linearize", wrong)


def test_register_read_inside_of_its_loops_is_found(bodies: list[UOp]) -> None:
    def wrong(program: UOp) -> UOp:
        linear = linearize(program)
        nodes = list(linear.src)
        for end in [n for n in nodes if n.op is Ops.END]:
            position = nodes.index(end)
            if nodes[position - 1].op is Ops.UPDATE and nodes[position + 1].op is Ops.RESULT:
                nodes[position], nodes[position + 1] = nodes[position + 1], end
        return UOp(Ops.LINEAR, dtypes.void, tuple(nodes))

    assert "before its loops have ended" in planted(bodies, PLAIN, "linearize", wrong)


def test_wrong_value_that_is_kept_is_found(bodies: list[UOp]) -> None:
    def wrong(kernel: UOp, target: Target) -> UOp:
        kernel = use_local_buffers(kernel, target)
        kept = {n: n.src[1:] for n in toposort((kernel,)) if n.op is Ops.LOCAL_BUFFER}
        turned = {n: n.src[0].substitute({row: row * -1 + (size_of(row) - 1)})
                  for n, (row,) in kept.items()}  # fmt: skip
        return kernel.substitute({n: n.with_src((v, *kept[n])) for n, v in turned.items()})

    assert "differs at" in planted(bodies, ROOM, "local buffers", wrong)


def test_scratch_memory_read_before_it_is_full_is_found(bodies: list[UOp]) -> None:
    def wrong(program: UOp) -> UOp:
        nodes = list(linearize(program).src)
        for kept in [n for n in nodes if n.op is Ops.FILLED]:
            nodes.remove(kept)
            nodes.insert(nodes.index(kept.src[0]) + 1, kept)
        return UOp(Ops.LINEAR, dtypes.void, tuple(nodes))

    assert "not filled in its loops" in planted(bodies, ROOM, "linearize", wrong)


def test_scratch_memory_filled_twice_is_found(bodies: list[UOp]) -> None:
    def wrong(program: UOp) -> UOp:
        linear = linearize(program)
        kept = [n for n in linear.src if n.op is Ops.FILLED]
        nodes = [m for n in linear.src for m in ([n, n] if n in kept else [n])]
        return UOp(Ops.LINEAR, dtypes.void, tuple(nodes))

    assert "filled twice" in planted(bodies, ROOM, "linearize", wrong)


def test_scratch_memory_out_of_order_is_found(bodies: list[UOp]) -> None:
    def wrong(kernel: UOp) -> UOp:
        program = reductions_to_accumulators(kernel)
        positions = [
            n for n in toposort((program,)) if n.op is Ops.INDEX and n.src[0].op is Ops.SCRATCH
        ]
        return program.substitute({n: n.with_src((n.src[0], n.src[1] * 0)) for n in positions})

    assert "order of its loops" in planted(bodies, ROOM, "accumulators", wrong)


def _shared(kernel: UOp, target: Target, fault: str) -> UOp:
    """As share_out_work_items, wrong by one somewhere."""
    loops = output_loops(kernel)
    if not target.work_items or not loops:
        return kernel
    total = prod(size_of(loop) for loop in loops)
    item = UOp.range(total - (fault == "items"), fresh_number(kernel), AxisRole.GLOBAL)
    changes: dict[UOp, UOp] = {}
    stride = 1
    for loop in reversed(loops):
        position = item // stride
        size = size_of(loop) - (fault == "remainder" and stride == 1 and len(loops) > 1)
        changes[loop] = position % max(size, 1) if stride * size_of(loop) < total else position
        stride *= size_of(loop) + (fault == "stride")
    return kernel.substitute(changes)


@pytest.mark.parametrize("fault", ["items", "remainder", "stride"])
def test_wrong_sharing_of_work_items_is_found(bodies: list[UOp], fault: str) -> None:
    assert planted(bodies, GPU, "work items", lambda kernel, target: _shared(kernel, target, fault))


def test_the_planted_sharing_without_a_fault_is_proven(bodies: list[UOp]) -> None:
    stages = stages_with("work items", lambda kernel, target: _shared(kernel, target, "none"))
    assert all(prove(body, GPU, stages).count.unknown == 0 for body in bodies)
    assert share_out_work_items(bodies[0], CPU) is bodies[0]


def test_error_of_the_compiler_stops_the_run_and_names_the_kernel(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stages = stages_with(
        "movement to index terms", lambda body: _moved(lower_movement(body), Ops.LOAD)
    )
    monkeypatch.setattr(compiler(), "kernel_stages", stages)
    with pytest.raises(ProofError, match=r"kernel E\w+, stage 'movement to index terms'"):
        compile_with(KernelProver(), data(6, 5) * 2.0, monkeypatch)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(programs())
def test_kernels_of_random_programs_are_proven(program: Program) -> None:
    for target in (CPU, GPU):
        assert prove(UOp.sink(program.value), target).count.unknown == 0


def _slope(function: Callable[[Tensor], Tensor], *shape: int) -> Tensor:
    x = data(*shape).requires_grad_()
    return function(x).sum().gradient(x)[0]


FOUND: dict[str, Callable[[], Tensor]] = {
    "one iteration, by a remainder": lambda: _slope(
        lambda x: x.conv2d(data(1, 1, 2)).mul(data(2, 1, 1)), 2, 1, 2
    ),
    "one iteration, from the end": lambda: _slope(
        lambda x: x.conv_transpose2d(data(7, 2, 3), stride=(1,), padding=(1,)).mul(data(2, 1)),
        1,
        7,
        1,
    ),
    "loops that run backwards": lambda: _slope(lambda x: x.cumsum(0).square(), 7),
    "lanes within lanes": lambda: data(4).log_softmax().sum(),
}


@pytest.mark.parametrize("name", FOUND)
def test_what_became_of_each_iteration_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = Recorder()
    compile_with(recorder, FOUND[name](), monkeypatch)
    assert not any([prove(body, CPU).not_covered for body in recorder.bodies])


def test_rows_of_a_tile_that_is_wider_than_its_columns_are_proven(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    recorder = Recorder()
    value = data(2, 1, 4).conv2d(data(16, 1, 2), data(16), stride=2, padding=1)
    compile_with(recorder, value, monkeypatch)
    monkeypatch.setenv("CHOICES", "tiled=on tile=8x3x16 depth=2")
    assert not any([prove(body, CPU).not_covered for body in recorder.bodies])
