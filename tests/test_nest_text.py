"""Graphs as the text of loop nests, and back: core/compile/text/show.py, reader.py."""

from __future__ import annotations

import math
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from counted_calls import calls
from hypothesis import example, given, settings
from hypothesis import strategies as st
from programs import programs

from proofgrad import Tensor, Variable
from proofgrad.core.compile.machine.target import Target
from proofgrad.core.compile.nests.kernel_schedule import AUTOMATIC, read_schedule
from proofgrad.core.compile.passes.forms import ALLOWED, Form
from proofgrad.core.compile.passes.stages import Stage, run_stages
from proofgrad.core.compile.text.reader import read_nest
from proofgrad.core.compile.text.show import NestText, show_nest
from proofgrad.core.compile.text.syntax import TYPES
from proofgrad.core.compile.text.term_reader import MOST_NESTED
from proofgrad.core.compile.text.terms import MOST_PARTS
from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.evaluate import identity
from proofgrad.core.ir.ops import COMPARE, ELEMENTWISE, TERNARY, UNARY, Ops
from proofgrad.core.ir.text import GraphTextError
from proofgrad.core.ir.uop import AxisRole, UOp
from proofgrad.core.tensor.runtime.realize import compiler, graph_to_run
from proofgrad.rules.pipeline import GRAPH_STAGES, KERNEL_STAGES

AVX512 = Target("AVX512", vector_bytes=64, vector_registers=32, threads=2, scratch_bytes=1 << 16)
ITEMS = Target("ITEMS", work_items=True, index_dtype=dtypes.int32)


def graph_of(*tensors: Tensor) -> UOp:
    return graph_to_run([t.uop for t in tensors], "CPU")


def stages_of(graph: UOp, target: Target, choices: str = "") -> list[tuple[str, UOp]]:
    """The graph after every stage that gives one, but for the KernelGraph, whose bodies are there."""
    seen: list[tuple[str, UOp]] = [("graph", graph)]

    def observe(stage: Stage, root: UOp, _: object) -> None:
        if stage.makes is not Form.KERNEL_GRAPH:
            seen.append((stage.name, root))

    library = compiler().library
    kernels = run_stages(GRAPH_STAGES, graph, library, target, observe)
    override = read_schedule(choices) if choices else AUTOMATIC
    for call in kernels.src:
        seen.append(("body", call.src[0]))
        if call.src[0].src[0].op is not Ops.COPY:
            run_stages(KERNEL_STAGES, call.src[0], library, target, observe, override)
    return seen


# -- what it looks like -------------------------------------------------------------------------

ROW_SUM = """\
kernel
  out: f32[3] = param 0
  a: f32[12] = param 1
  for r0 < 3
    out[r0] = sum[r1 < 4](a[r0 * 4 + r1])
"""


def row_sum() -> UOp:
    out, a = [UOp(Ops.PARAM, dtypes.float32, (), p) for p in ((0, 3), (1, 12))]
    row, step = UOp.range(3, 0), UOp.range(4, 1, AxisRole.REDUCE)
    position = UOp(Ops.INDEX, dtypes.float32, (a, row * 4 + step))
    load = UOp(Ops.LOAD, dtypes.float32, (position,))
    total = UOp(Ops.REDUCE, dtypes.float32, (load, step), Ops.ADD)
    there = UOp(Ops.INDEX, dtypes.float32, (out, row))
    return UOp.sink(UOp(Ops.STORE, dtypes.void, (there, total)))


def test_a_kernel_reads_like_a_loop_nest() -> None:
    assert show_nest(row_sum()) == ROW_SUM
    assert read_nest(ROW_SUM) is row_sum()


def test_spaces_and_remarks_do_not_matter() -> None:
    text = "# sums\n" + ROW_SUM.replace(" + ", "+").replace("kernel", "kernel   # rows")
    assert read_nest(text) is row_sum()


def test_masks_literals_roles_and_several_stores_are_read_as_written() -> None:
    graph = read_nest(
        """
kernel
  out: f32[8] = param 0
  a: i32[8] = param 1
  for r0 < 4 as thread
    for r3 < 4 as vector
      let t1 = f32(a[r0 + r3 * 2 if (r0 < 3) & (r3 < 2)])
      out[r0 + r3] = (t1 - 1.0) * max(t1, -0.0) + nan
      out[r3 - r0] = -t1 - -(1.0)
    for r5 < 2 in order
      out[i32(r0) + a[r5]] max= f32(1:i32 + a[r5])
"""
    )
    first, second, third = graph.src
    product, nan = first.src[1].src
    assert math.isnan(nan.arg) and product.src[0].src[1] is UOp.const(dtypes.float32, -1.0)
    assert product.src[1].src[1] is UOp.const(dtypes.float32, -0.0)
    mask = product.src[0].src[0].src[0].src[0].src[2]
    assert mask.op is Ops.AND and mask.src[0].op is Ops.CMPLT
    assert second.src[1].src[0].op is second.src[1].src[1].op is Ops.NEG
    assert third.arg is Ops.MAX and third.src[2] is UOp.range(2, 5, AxisRole.REDUCE)
    assert third.src[0].src[1].dtype is dtypes.int32
    assert read_nest(show_nest(graph)) is graph


def test_what_is_used_twice_is_named_once() -> None:
    loop = UOp.range(9, 0)
    term = loop * loop + 7
    for _ in range(100):
        term = term * term + 1
    text = show_nest(term)
    assert len(text.splitlines()) < 110 and read_nest(text) is term


def test_loops_of_one_number_are_told_apart() -> None:
    loops = [UOp.range(4, 1), UOp.range(5, 1), UOp.range(4, 1, AxisRole.REDUCE)]
    term = loops[0] + loops[1] * loops[2]
    assert "r1b" in show_nest(term) and read_nest(show_nest(term)) is term


def test_names_do_not_clash_with_words_and_with_each_other() -> None:
    names = ["t0", "r0", "sum", "f32", "out", "x'"]
    variables = [UOp(Ops.VARIABLE, dtypes.index, (), (name, 0, 9)) for name in names]
    term = UOp.range(3, 0)
    for variable in variables:
        term = (term + variable) * (term + variable)
    assert read_nest(show_nest(term)) is term


def test_every_type_is_read_back() -> None:
    for dtype in (*dtypes.all, *dtypes.fp8s, dtypes.index):
        for lanes in (1, 2, 16) if dtype is not dtypes.index else (1,):
            one = UOp.const(dtype, 1)
            wide = one if lanes == 1 else UOp(Ops.BROADCAST, dtype.vec(lanes), (one,))
            memory = UOp(Ops.PARAM, dtype.vec(lanes), (), (1, 5))
            load = UOp(
                Ops.LOAD, memory.dtype, (UOp(Ops.INDEX, memory.dtype, (memory, UOp.index(0))),)
            )
            for node in (one, wide, load, UOp(Ops.MAX, load.dtype, (load, wide))):
                assert read_nest(show_nest(node)) is node
    assert len(TYPES) == len(dtypes.all) + len(dtypes.fp8s) + 2


@pytest.mark.parametrize("dtype", dtypes.floats, ids=lambda d: d.name)
def test_floats_keep_every_bit(dtype: Any) -> None:
    random = Random(0)
    values = [0.0, -0.0, math.inf, -math.inf, math.nan, 0.1, 1e-40, 5e-324, 65504.0, 3.0e38]
    values += [random.uniform(-1, 1) * 10.0 ** random.randint(-30, 30) for _ in range(200)]
    for value in values:
        node = UOp.const(dtype, value)
        assert read_nest(show_nest(node)) is node
        raw = UOp(Ops.CONST, dtype, (), value)  # not rounded: no constant of the type
        assert read_nest(show_nest(raw + UOp.const(dtype, 2))) is raw + UOp.const(dtype, 2)


# -- any graph ----------------------------------------------------------------------------------

_KERNEL_OPS = sorted(
    ALLOWED[Form.KERNEL] | ALLOWED[Form.PROGRAM] | ALLOWED[Form.LINEAR] | ALLOWED[Form.TENSOR_GRAPH]
)
_ARGS: list[Any] = [
    None, 0, -3, True, 1.5, -math.inf, "it's \"CPU\"\n", Ops.ADD, Ops.MAX, AxisRole.VECTOR, (), (2,),
    (0, 4), (1, AxisRole.LOOP), (1, AxisRole.REDUCE), (2, AxisRole.UPCAST), ((0, 5), 6), (0, (1, (2, 3))),
    (7, 1, "n"), ("n", 0, 4), (Ops.ADD, (0, 1)),
]  # fmt: skip


_TENSOR_ARGS = {
    Ops.RESHAPE: (4, 1), Ops.PERMUTE: (1, 0), Ops.EXPAND: (2, 2), Ops.PAD: ((0, 1), (2, 0)),
    Ops.SHRINK: ((0, 1), (0, 2)), Ops.FLIP: (True, False), Ops.SKEW: (0, 1, 1, 2),
    Ops.REDUCE_AXIS: (Ops.MAX, (1,)),
}  # fmt: skip


def any_graph(random: Random, size: int) -> UOp:
    """Nodes of every operation that the forms allow, some as they should be, some as no form has them."""
    types = [dtypes.index, dtypes.float32, dtypes.int64, dtypes.bool, dtypes.float32.vec(4),
             dtypes.index.vec(4), dtypes.fp8e4m3, dtypes.void]  # fmt: skip
    out, a = [UOp(Ops.PARAM, dtypes.float32, (), p) for p in ((0, 8), (1, 8))]
    loops = [UOp.range(4, k, role) for k, role in enumerate(AxisRole)]
    pool = [out, a, *loops, UOp.index(3), UOp.const(dtypes.float32, -1.5), UOp.index(-2)]
    square = UOp(Ops.RESHAPE, dtypes.int, (UOp(Ops.IOTA, dtypes.int, (), 4),), (2, 2))
    made: list[UOp] = []
    while len(made) < size:
        op = random.choice(_KERNEL_OPS)
        some = pool[-12:] if random.random() < 0.7 else pool
        count = (
            2
            if op in (Ops.REDUCE, Ops.LOCAL_BUFFER, Ops.STORE, Ops.INDEX)
            else random.choice([0, 1, 2, 3])
        )
        count = 1 if op in UNARY else 3 if op in TERNARY else 2 if op in ELEMENTWISE else count
        src = tuple([random.choice(some) for _ in range(count)])
        dtype, arg = random.choice(types), None
        if random.random() < 0.5 and src:
            dtype = src[-1].dtype if op not in COMPARE else dtypes.bool.vec(src[0].dtype.lanes)
        match op:
            case Ops.INDEX:
                src, dtype = (random.choice([out, a, *some[-1:]]), src[-1]), dtypes.float32
            case Ops.REDUCE | Ops.LOCAL_BUFFER:
                src, dtype = (src[0], random.choice(loops)), src[0].dtype
                arg = random.choice([Ops.ADD, Ops.MAX, Ops.XOR]) if op is Ops.REDUCE else None
            case Ops.STORE:
                positions = [n for n in pool if n.op is Ops.INDEX] or [out]
                src, dtype = (
                    (random.choice(positions), src[-1], *random.sample(loops, 1)),
                    dtypes.void,
                )
                src = src if random.random() < 0.5 else src[:2]
                arg = random.choice([None, Ops.ADD, Ops.MIN])
            case Ops.IOTA:
                src, arg = (), 4
            case _ if op in _TENSOR_ARGS:
                src, dtype, arg = (square,), square.dtype, _TENSOR_ARGS[op]
            case Ops.CONST:
                src, dtype = (), random.choice(types[:7])
                arg = identity(Ops.ADD, dtype) if dtype.lanes == 1 else (0,) * 4
        if (
            random.random() < 0.1
            or op not in {*ELEMENTWISE, *_TENSOR_ARGS}
            and random.random() < 0.3
        ):
            arg = random.choice([*_ARGS, random.choice(pool)])
        try:
            node = UOp(op, dtype, src, arg)
        except (ValueError, TypeError, LookupError, AttributeError):
            continue
        made.append(node)
        pool.append(node)
    stores = [n for n in made if n.op is Ops.STORE]
    if stores and random.random() < 0.7:
        return UOp.sink(*stores)
    return random.choice(
        [made[-1], UOp.sink(*made[-3:]), UOp(Ops.LINEAR, dtypes.void, tuple(made))]
    )


@settings(max_examples=400, deadline=None)
@given(st.integers(0, 1 << 60), st.integers(1, 40))
@example(916776, 1)  # a register whose loop is no line of the LINEAR
def test_any_graph_is_read_back_as_the_same_object(seed: int, size: int) -> None:
    graph = any_graph(Random(seed), size)
    try:
        text = show_nest(graph)
    except ValueError as error:
        assert "has no text" in str(error)
        return
    assert read_nest(text) is graph, text
    assert read_nest(show_nest(UOp.sink(UOp.sink(graph), UOp.sink()))) is not None


def test_the_graphs_drawn_hold_every_operation() -> None:
    ops = {n.op for seed in range(300) for n in any_graph(Random(seed), 30).toposort()}
    assert set(_KERNEL_OPS) <= ops


# -- real programs ------------------------------------------------------------------------------


def _programs() -> dict[str, Any]:
    x = lambda *shape: Tensor.empty(*shape)  # noqa: E731
    n = Variable("n", 1, 10).bind(4)
    return {
        "matmul": lambda: x(70, 65) @ x(65, 80),
        "softmax": lambda: x(9, 33).softmax(),
        "layernorm": lambda: x(9, 33).layernorm(),
        "convolution": lambda: x(2, 3, 9, 9).conv2d(x(4, 3, 3, 3), padding=1).relu(),
        "pool": lambda: x(2, 3, 8, 8).max_pool2d((2, 2)),
        "embedding": lambda: x(50, 8)[Tensor([3, 4, 49])],
        "counts": lambda: x(5).scatter_reduce(0, Tensor([0, 1, 1]), x(3), "sum"),
        "halves": lambda: (x(33).half() + 0.1).exp().sum(),
        "bits": lambda: (Tensor([1, 2, 3]).cast("uint8") << 2).bitcast("int8").sum(),
        "sine": lambda: x(40).sin() + x(40).log2(),
        "variable": lambda: x(10, 3).shrink(((0, n), None)).sum(0),
        "random": lambda: Tensor.rand(100).sum(),
    }


@pytest.mark.parametrize("name", list(_programs()))
@pytest.mark.parametrize("target", [AVX512, ITEMS], ids=lambda t: t.name)
def test_every_stage_of_a_program_is_read_back(name: str, target: Target) -> None:
    graph = graph_of(_programs()[name]())
    for stage, made in stages_of(graph, target):
        text = show_nest(made)
        assert read_nest(text) is made, f"{stage}\n{text}"


def test_tables_blocks_and_packed_columns_are_read_back() -> None:
    graph = graph_of(Tensor.empty(70, 65) @ Tensor.empty(65, 80))
    for choices in (
        "tile=4x1x16 staged=rows+columns",
        "tile=4x2x16 packed=on",
        "reduction_block=5 tiled=off",
    ):
        for _, made in stages_of(graph, AVX512, choices):
            assert read_nest(show_nest(made)) is made


@settings(max_examples=25, deadline=None)
@given(programs())
def test_every_stage_of_a_drawn_program_is_read_back(program: Any) -> None:
    library = compiler().library
    seen = [program.value]
    target = replace(AVX512, vector_bytes=16)
    body = UOp.sink(program.value)
    run_stages(KERNEL_STAGES, body, library, target, lambda _, root, __: seen.append(root))
    for made in seen:
        assert read_nest(show_nest(made)) is made


def chains(length: int) -> tuple[UOp, UOp]:
    """A term of six nodes a link, and one of two."""
    memory = UOp(Ops.PARAM, dtypes.float32, (), (1, 1 << 20))
    loop, term = UOp.range(9, 0), UOp.const(dtypes.float32, 1)
    for k in range(length):
        position = UOp(Ops.INDEX, dtypes.float32, (memory, loop + (k % 1000)))
        term = term * UOp(Ops.LOAD, dtypes.float32, (position,)) + term
    chain = loop
    for k in range(2 * length):
        chain = chain + (k % 7)
    return term, chain


@pytest.mark.long
def test_a_graph_of_100000_nodes_is_printed_and_read() -> None:
    for node in chains(20_000):
        text = show_nest(node)
        assert len(text) < 4_000_000
        assert read_nest(text) is node


def test_twice_the_nodes_take_twice_the_calls() -> None:
    for one, two in zip(chains(500), chains(1000)):
        for work in (show_nest, lambda node: read_nest(show_nest(node))):
            assert calls(lambda: work(two)) < 2.2 * calls(lambda: work(one))


def test_names_of_another_text_are_kept() -> None:
    before = NestText(_long_kernel(3))
    after = NestText(_long_kernel(4), before.names)
    shared = before.names.keys() & after.names.keys()
    assert shared and all([before.names[n] == after.names[n] for n in shared])
    assert read_nest(after.text) is _long_kernel(4)


def _long_kernel(last: int) -> UOp:
    text = ROW_SUM.replace("out[r0] =", "let t0 = a[r0 * 4] * a[r0] + a[r0 * 2]\n    out[r0] =")
    return read_nest(text.replace("r1])", f"r1]) * t0 * t0 + {last}.0"))


# -- text that is no graph ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1, column 1: expected a graph, found no text"),
        ("kernal\n", "line 1, column 1: expected one of kernel, program, linear, graph, term"),
        ("  return 3", "line 1, column 3: expected a first line that says kernel"),
        ("term\n  return x", "line 2, column 10: there is nothing called x above"),
        ("term\n  return __import__(3)", "line 2, column 10: there is nothing called __import__ above"),
        ("term\n  return 3 +", "line 2, column 13: expected a term, found the end of the line"),
        ("term\n  return (3", "line 2, column 12: expected `)`, found the end of the line"),
        ("term\n  return 1 < 2 < 3", "expected parentheses around a comparison"),
        ("term\n  return 300:i8", "line 2, column 10: 300 does not fit int8"),
        ("term\n  return 1.5:i32", "line 2, column 10: 1.5 is no i32"),
        ("term\n  return 1:f99", "line 2, column 12: expected a type, as f32, idx or i64x8"),
        ("term\n  return 3 ; 4", "line 2, column 12: ';' does not belong here"),
        ("term\n    return 3", "line 2, column 5: expected 2 spaces or less, found 4"),
        ("term\n  return 3\n  return 4", "a term has one `return`, not 2"),
        ("term\n  let sum = 3", "line 2, column 7: sum is a word of the language"),
        ("term\n  let x = 3\n  let x = 4", "line 3, column 7: x is the name of something else"),
        ("term\n  over k < 4", "line 2, column 8: a loop is called r and its number"),
        ("term\n  over r1 < 4 as gloabl", "expected one of loop, reduce, thread"),
        ("term\n  return reshape{(2, 3)}(3)", "no reshape of these (cannot reshape"),
        ("term\n  return " + "9" * 500, "a number of more than 400 digits"),
        ("term\n  return " + "(" * 5000, f"terms nest more than {MOST_NESTED} deep"),
        ("term\n  return " + "-" * 5000 + "x", f"terms nest more than {MOST_NESTED} deep"),
        ("term\n  return const{" + "(" * 5000, "tuples nest too deep"),
        ("term\n  return f32x99999(1)", "there is nothing called f32x99999 above"),
        ("kernel\n  for r0 < 3", "expected a line inside of the last `for`"),
        ("kernel\n  for r0 < 3\n  return 3", "line 3, column 3: expected 4 spaces, found 2"),
        ("kernel 1 of 2\n  return 3", "1 graphs are called `1 of 1`"),
        (ROW_SUM.replace("[r0] =", "[r1] ="), "there is nothing called r1 above"),
        (ROW_SUM.replace("a[r0 * 4 + r1]", "b[r0]"), "line 5, column 27: there is nothing called b"),
        (ROW_SUM.replace("f32[12]", "f32[-12"), "line 3, column 14: expected `]`"),
    ],
)  # fmt: skip
def test_other_text_is_refused_with_its_position(text: str, message: str) -> None:
    with pytest.raises(GraphTextError) as error:
        read_nest(text)
    assert message in str(error.value)


def test_loops_around_a_store_must_be_those_that_it_changes_with() -> None:
    text = "kernel\n  out: f32[9] = param 0\n  for r0 < 3\n    for r1 < 3\n      out[{}] = 0.0\n"
    assert read_nest(text.format("r0 * 3 + r1"))
    with pytest.raises(GraphTextError, match="line 5, column 7: expected this store inside of r0"):
        read_nest(text.format("r0"))
    swapped = text.replace("r0 <", "r2 <").format("r2 * 3 + r1")
    with pytest.raises(GraphTextError, match="in the order in which they run: r1, r2"):
        read_nest(swapped)


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 1 << 60))
def test_damaged_text_is_read_or_refused_and_nothing_else(seed: int) -> None:
    random = Random(seed)
    text = show_nest(any_or_row_sum(random))
    for _ in range(random.choice([1, 2, 8])):
        at = random.randrange(len(text))
        piece = random.choice(
            ["", "(", ")", "[", "r1", " ", "\n", "-", "9", '"', "{", "let ", "\x00", "é"]
        )
        text = text[:at] + piece + text[at + random.choice([0, 1, 5]) :]
        text = text or "x"
    try:
        read_nest(text)
    except GraphTextError as error:
        assert str(error).startswith("line ")


def any_or_row_sum(random: Random) -> UOp:
    graph = any_graph(random, 12)
    try:
        show_nest(graph)
    except ValueError:
        return row_sum()
    return graph


def test_golden_line_lengths() -> None:
    """No term of a line has many more parts than a reader takes in at once."""
    graph = graph_of(Tensor.empty(70, 65) @ Tensor.empty(65, 80))
    lines = [line for _, made in stages_of(graph, AVX512) for line in show_nest(made).splitlines()]
    assert max(map(len, lines)) < 12 * MOST_PARTS
