"""Steps on programs of tensors: they keep every small program, refuse what they cannot do, and are the only way to change one."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest
from linear_kernels import edge_values
from small_graphs import (
    GRAPH_ARGUMENTS,
    check,
    memory,
    nested_reductions,
    program,
    reduced,
    run_on_graphs,
    tensor,
)
from test_loop_nests import uses

from proofgrad import Variable
from proofgrad.core.compile.passes.context import Context
from proofgrad.core.compile.passes.forms import Form
from proofgrad.core.compile.passes.stages import GraphTactic, Stage, run_stages
from proofgrad.core.compile.steps.loop_nest import STEPS, StepRefused
from proofgrad.core.compile.steps.read_through import read_through
from proofgrad.core.compile.steps.reduce_in_parts import Blocks, Ends, Parts, reduce_in_parts
from proofgrad.core.compile.steps.store import store
from proofgrad.core.compile.steps.tensor_program import (
    GRAPH_STEPS,
    GraphStep,
    TensorProgram,
    traced,
)
from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.evaluate import evaluate
from proofgrad.core.ir.ops import COMMUTATIVE, COMPARE, Ops
from proofgrad.core.ir.uop import UOp, toposort
from proofgrad.core.rewrite.ledger import EvidenceError
from proofgrad.core.tensor.runtime.realize import compiler


@pytest.mark.parametrize(
    ("name", "stride"),
    [
        ("read_through", 19),
        ("reduce_in_parts", 1),
        ("store", 7),
        ("read_parts", 1),
        ("exchange", 1),
    ],
)
def test_a_step_keeps_what_small_programs_compute(name: str, stride: int) -> None:
    """Every so many of them; `python tests/small_graphs.py` tries all."""
    count = run_on_graphs(name, 0, stride)
    assert count.made > 100 and count.refused


def test_every_step_has_arguments() -> None:
    assert GRAPH_ARGUMENTS.keys() == GRAPH_STEPS.keys()
    assert GRAPH_STEPS.keys().isdisjoint(STEPS)


# -- reductions in parts --------------------------------------------------------------------------


def sum_of(*shape: int, axes: tuple[int, ...]) -> UOp:
    return reduced(tensor(0, *shape), Ops.ADD, axes)


def taken(parts: Mapping[UOp, Parts], *roots: UOp) -> UOp:
    return reduce_in_parts(traced(program(*roots)), parts).graph


WRONG_PARTS: dict[str, tuple[Parts, str]] = {
    "blocks that do not divide the axis": (Blocks(1, 4, ()), "blocks of unequal length: 6, 4"),
    "blocks of nothing": (Blocks(1, 0, ()), "blocks of unequal length: 6, 0"),
    "blocks of less than nothing": (Blocks(1, -2, ()), "blocks of unequal length: 6, -2"),
    "an axis of the results": (Blocks(0, 2, ()), "an axis that is not reduced: 0"),
    "no axis": (Blocks(3, 1, ()), "an axis that is not reduced: 3"),
    "an axis from behind": (Blocks(-1, 1, ()), "an axis that is not reduced: -1"),
    "within another axis of the results": (Blocks(1, 2, (0,)), r"not reduced: \(0\)"),
    "within the axis itself": (Blocks(1, 2, (1,)), r"not reduced: \(1\)"),
    "ends of an axis of the results": (Ends(0, 1), "an axis that is not reduced: 0"),
    "an end of nothing": (Ends(1, 0), "a part that is none: 0, 6"),
    "an end that is all": (Ends(1, 6), "a part that is none: 6, 6"),
    "an end beyond the end": (Ends(1, 7), "a part that is none: 7, 6"),
    "a wrong part of a part": (Ends(1, 4, head=Blocks(1, 3, ())), "blocks of unequal length: 4, 3"),
    "a wrong part of the other": (Ends(1, 4, rest=Blocks(1, 4, ())), "unequal length: 2, 4"),
    "a wrong part of the sums": (Blocks(1, 2, (2,), across=Blocks(1, 2, ())), "length: 3, 2"),
}


@pytest.mark.parametrize("case", WRONG_PARTS)
def test_parts_that_are_not_the_reduction_are_refused(case: str) -> None:
    total = sum_of(2, 6, 5, axes=(1, 2))
    parts, why = WRONG_PARTS[case]
    with pytest.raises(StepRefused, match=why):
        taken({total: parts}, total)


def test_what_is_no_reduction_has_no_parts() -> None:
    value = tensor(0, 6).alu(Ops.NEG)
    with pytest.raises(StepRefused, match="no reduction"):
        taken({value: Blocks(0, 2, ())}, value)


def test_a_reduction_of_another_program_is_refused() -> None:
    total, other = sum_of(6, axes=(0,)), sum_of(8, axes=(0,))
    with pytest.raises(StepRefused, match="not in the graph"):
        taken({total: Blocks(0, 2, ()), other: Blocks(0, 2, ())}, total)


def test_axes_of_unknown_size_have_no_parts() -> None:
    n = Variable("n", 1, 6).bind(4)
    some = UOp(Ops.SHRINK, tensor(0, 6).dtype, (tensor(0, 6),), ((0, n),))
    total = reduced(some, Ops.ADD, (0,))
    with pytest.raises(StepRefused, match="axes of unknown size"):
        taken({total: Blocks(0, 2, ())}, total)


def test_no_parts_change_nothing() -> None:
    graph = traced(program(sum_of(6, axes=(0,))))
    assert reduce_in_parts(graph, {}) is graph


def test_results_of_blocks_are_stored_block_by_block_where_that_is_asked() -> None:
    total = sum_of(3, 8, axes=(1,))
    for blocks_first, shape in ((True, (4, 3, 1)), (False, (3, 4, 1))):
        made = taken({total: Blocks(1, 2, (), blocks_first)}, total)
        (stored,) = [n for n in toposort((made,)) if n.op is Ops.CONTIGUOUS]
        assert stored.shape == shape


def test_many_reductions_are_taken_in_one_walk() -> None:
    """A step for each would walk through the graph as often: minutes for this one."""
    value, parts = tensor(0, 4, 6), dict[UOp, Parts]()
    for _ in range(5_000):
        total = reduced(value, Ops.MAX, (1,))
        parts[total] = Blocks(1, 2, ())
        spread = UOp(Ops.EXPAND, total.dtype, (total,), (4, 6))
        value = spread.alu(Ops.ADD, value)
    made = taken(parts, value)
    assert len([n for n in toposort((made,)) if n.op is Ops.CONTIGUOUS]) == len(parts)


# -- past writes ----------------------------------------------------------------------------------


def test_zero_added_twice_is_zero_added_once_for_every_type() -> None:
    for dtype in (*dtypes.ints, *dtypes.floats):
        zero = 0.0 if dtype.is_float else 0
        for value in edge_values(dtype):
            once = evaluate(Ops.ADD, dtype, (value, zero))
            assert repr(evaluate(Ops.ADD, dtype, (once, zero))) == repr(once)


def test_a_slice_of_unknown_size_is_not_read_past_writes() -> None:
    n = Variable("n", 1, 6).bind(4)
    some = UOp(Ops.SHRINK, dtypes.int32, (tensor(0, 6),), ((0, n),))
    with pytest.raises(StepRefused, match="a slice of unknown size"):
        read_through(traced(program(some)), frozenset([some]))


def test_a_slice_reads_past_many_writes_in_one_walk() -> None:
    """Each of them a step of a loop that reads the one before: what is left is the chain of the steps."""
    steps = 300
    true = UOp(Ops.RESHAPE, dtypes.bool, (UOp.const(dtypes.bool, True),), (1,))
    value, slices = tensor(0, steps), list[UOp]()
    for k in range(1, steps):
        slices.append(UOp(Ops.SHRINK, dtypes.int32, (value,), ((k - 1, k),)))
        mask, step = [
            UOp(Ops.PAD, x.dtype, (x,), ((k, steps - 1 - k),))
            for x in (true, slices[-1].alu(Ops.NEG))
        ]
        value = mask.alu(Ops.WHERE, step, value)
    last = UOp(Ops.SHRINK, dtypes.int32, (value,), ((steps - 1, steps),))
    made = read_through(traced(program(last)), frozenset([*slices, last])).graph
    ops = [n.op for n in toposort((made,))]
    assert (ops.count(Ops.NEG), ops.count(Ops.WHERE), ops.count(Ops.SHRINK)) == (steps - 1, 0, 1)


# -- values in memory -----------------------------------------------------------------------------


def stored(values: Iterable[UOp], *roots: UOp) -> UOp:
    return store(traced(program(*roots)), frozenset(values)).graph


def sum_of_squares() -> tuple[UOp, UOp, UOp]:
    """A tensor squared, the sum of that, and this plus 1 in another shape."""
    value = tensor(0, 2, 3)
    square = value.alu(Ops.MUL, value)
    total = reduced(square, Ops.ADD, (0,))
    return square, total, UOp(Ops.RESHAPE, total.dtype, (total.alu(Ops.NEG),), (3,))


def on_another_device(value: UOp) -> UOp:
    return UOp(Ops.COPY, value.dtype, (value,), "OTHER")


def test_a_root_has_memory() -> None:
    square, total, root = sum_of_squares()
    assert len(stored([root.src[0]], root).src) == 1
    with pytest.raises(StepRefused, match="a root that is not stored"):
        stored([total], root)
    with pytest.raises(StepRefused, match="a root that is not stored"):
        stored([root], root)  # whose memory has no shape: it is that of what is reshaped


def test_a_value_of_another_program_is_refused() -> None:
    square, total, root = sum_of_squares()
    with pytest.raises(StepRefused, match="values that are not in the graph"):
        stored([root.src[0], tensor(5, 7).alu(Ops.NEG)], root)


@pytest.mark.parametrize("op", [Ops.BUFFER, Ops.UNIQUE, Ops.DEVICE, Ops.SINK], ids=str)
def test_what_is_no_value_is_not_stored(op: Ops) -> None:
    _, _, root = sum_of_squares()
    node = next(n for n in toposort((program(root),)) if n.op is op)
    with pytest.raises(StepRefused, match="no value"):
        stored([root.src[0], node], root)


def test_a_copy_is_no_part_of_a_kernel() -> None:
    copy = on_another_device(tensor(0, 3))
    with pytest.raises(StepRefused, match="a copy of what no memory holds, or in a kernel"):
        stored([copy.alu(Ops.NEG)], copy.alu(Ops.NEG))


def test_a_copy_is_of_what_memory_holds() -> None:
    square, _, _ = sum_of_squares()
    copy = on_another_device(square)
    assert len(stored([square, copy], copy).src) == 2
    with pytest.raises(StepRefused, match="a copy of what no memory holds, or in a kernel"):
        stored([copy], copy)


def test_a_kernel_reads_memory_of_its_device() -> None:
    square, _, _ = sum_of_squares()
    copy = on_another_device(square)
    both = square.alu(Ops.ADD, copy)
    with pytest.raises(StepRefused, match="memory of another device"):
        stored([square, copy, both], both)


def test_memory_with_the_number_of_a_new_one_is_refused() -> None:
    value = UOp(Ops.RESHAPE, tensor(0, 3).dtype, (memory(-1, 3),), (3,)).alu(Ops.NEG)
    with pytest.raises(StepRefused, match="memory with the number of a new one"):
        stored([value], value)


def test_what_is_stored_is_computed_once_and_read_by_all() -> None:
    square, total, root = sum_of_squares()
    graph = stored([square, total, root.src[0]], root, square)
    assert [call.src[1].src[0].arg for call in graph.src] == [-1, -2, -3]
    assert [[b.src[0].arg for b in call.src[2:]] for call in graph.src] == [[0], [-1], [-2]]
    assert [buffer.src[0].arg for buffer in graph.arg] == [-3, -1]


def test_memory_itself_and_what_has_no_elements_need_no_kernel() -> None:
    here, nothing = tensor(0, 3), tensor(1, 0, 2).alu(Ops.NEG)
    graph = stored([nothing], here, nothing)
    assert graph.src == () and [b.arg for b in graph.arg] == [3, 0]


def test_many_values_are_stored_in_one_walk() -> None:
    """A step for each would walk through the graph as often: minutes for this one."""
    value, values = tensor(0, 4), list[UOp]()
    for k in range(60_000):
        value = value.alu(Ops.ADD if k % 2 else Ops.MUL, tensor(1, 4))
        values += [] if k % 6 else [value]
    graph = stored([*values, value], value)
    assert len(graph.src) == len({*values, value})


def test_only_steps_make_kernels_of_a_program() -> None:
    """But for the view of kernels that a user asks for, which nothing runs, no other file makes a CALL."""
    makers = set()
    for path in (Path(__file__).parent.parent / "core").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "UOp":
                if "CALL" in [getattr(part, "attr", "") for part in node.args]:
                    makers.add(path.name)
    assert makers == {"store.py", "scheduling.py"}


# -- programs and who may change them -------------------------------------------------------------


def test_only_the_runner_of_stages_opens_programs() -> None:
    assert uses("traced") == {"core/compile/passes/stages.py"}


def test_a_program_is_not_made_by_hand() -> None:
    with pytest.raises(TypeError, match="made by steps"):
        TensorProgram(program(tensor(0, 3)), (), object())


def test_a_program_knows_the_steps_that_were_taken() -> None:
    total = sum_of(6, axes=(0,))
    made = reduce_in_parts(traced(program(total)), {total: Blocks(0, 2, ())})
    assert [str(one) for one in made.taken] == ["reduce_in_parts(1 node)"]


def test_a_step_from_elsewhere_is_not_taken_by_the_name_of_one_with_evidence() -> None:
    def wrong(program: TensorProgram, wanted: frozenset[UOp]) -> UOp:
        return UOp.sink(memory(0, 1))

    with pytest.raises(EvidenceError, match="it is not the step of"):
        GraphStep("reduce_in_parts", reduce_in_parts.law, wrong)(traced(program()), frozenset())
    with pytest.raises(EvidenceError, match="there is no evidence"):
        GraphStep("mine", "f = f", wrong)(traced(program()), frozenset())


def wrong_parts(graph: TensorProgram, context: Context) -> TensorProgram:
    """Takes a step that is right, then one that is refused."""
    (total,) = graph.graph.src
    made = reduce_in_parts(graph, {total: Blocks(0, 2, ())})
    return reduce_in_parts(made, {total: Blocks(0, 2, ())})  # which is no longer there


def test_where_a_step_refuses_the_program_stays_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, library = program(sum_of(6, axes=(0,))), compiler().library
    stage = Stage("refused", Form.TENSOR_GRAPH, GraphTactic(wrong_parts))
    required = Stage("required", Form.TENSOR_GRAPH, GraphTactic(wrong_parts, required=True))
    monkeypatch.delenv("SPEC", raising=False)
    assert run_stages([stage], graph, library) is graph
    with pytest.raises(StepRefused):
        run_stages([required], graph, library)
    monkeypatch.setenv("SPEC", "1")
    with pytest.raises(StepRefused):
        run_stages([stage], graph, library)


def test_a_tactic_gives_back_what_steps_made() -> None:
    wrong = GraphTactic(lambda graph, context: graph.graph)  # type: ignore[arg-type,return-value]
    with pytest.raises(TypeError, match="what no step made"):
        run_stages(
            [Stage("wrong", Form.TENSOR_GRAPH, wrong)], program(tensor(0, 3)), compiler().library
        )


# -- what is asked finds what is wrong ------------------------------------------------------------


def test_a_program_that_takes_an_element_twice_is_found() -> None:
    graph = next(iter(nested_reductions()))
    wrong = graph.replace(src=(graph.src[0].alu(Ops.ADD, graph.src[0]), graph.src[1]))
    check(graph, graph)
    with pytest.raises(AssertionError, match="not"):
        check(graph, wrong)


def test_operations_that_commute_do_so_for_every_type() -> None:
    """The table of operations says which do; each on edge values, NaN as any NaN."""
    for dtype in dtypes.all:
        values = edge_values(dtype)
        for op in sorted(COMMUTATIVE):
            given = dtypes.bool if op in COMPARE else dtype
            try:
                both = [(evaluate(op, given, (a, b), (dtype, dtype)), evaluate(op, given, (b, a), (dtype, dtype))) for a in values for b in values]  # fmt: skip
            except (ValueError, TypeError):
                continue  # an operation that the type does not have
            for one, other in both:
                assert repr(one) == repr(other), (op, dtype)
