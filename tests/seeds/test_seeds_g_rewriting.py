"""Seed lines G01 to G19: nodes, patterns, rewriting."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
from seed_lines import ROOT, differs, later, page, run_snippet

from proofgrad import Ops, Tensor, UOp, commands, dtypes, explain, load_rules
from proofgrad.core.ir.text import read_uop
from proofgrad.core.ir.uop import AxisRole

CONSTANTS = """\
from tinygrad import dtypes
from tinygrad.uop import UOp, Ops

# Create constant UOPs
a = UOp(Ops.CONST, dtypes.int, arg=2)
b = UOp(Ops.CONST, dtypes.int, arg=2)

# Global uniqueness: same specifications = same object
assert a is b

# Construct computation
a_plus_b = a + b
print(a_plus_b)
"""
PATTERNS = (
    CONSTANTS
    + """\
from tinygrad.uop.ops import graph_rewrite, UPat, PatternMatcher
from tinygrad.uop import UOp, Ops

# Define a constant folding pattern
simple_pm = PatternMatcher([
  (UPat(Ops.ADD, src=(UPat(Ops.CONST, name="c1"), UPat(Ops.CONST, name="c2"))),
   lambda c1,c2: UOp(Ops.CONST, dtype=c1.dtype, arg=c1.arg+c2.arg)),
])

# Apply the pattern
a_plus_b_simplified = graph_rewrite(a_plus_b, simple_pm)
print(a_plus_b_simplified)  # UOp(Ops.CONST, dtypes.int, arg=4, src=())
"""
)
SUGAR = (
    PATTERNS
    + """\
simpler_pm = PatternMatcher([
  (UPat.cvar("c1")+UPat.cvar("c2"), lambda c1,c2: c1.const_like(c1.arg+c2.arg))
])

assert graph_rewrite(a_plus_b, simple_pm) is graph_rewrite(a_plus_b, simpler_pm)
"""
)


def test_G01_equal_constants_are_one_object() -> None:
    """`UOp(Ops.CONST, dtypes.int, arg=2)` twice is one object"""
    ran = run_snippet(CONSTANTS)
    assert ran["a"] is ran["b"]


def test_G02_nodes_add() -> None:
    """`a + b` on nodes"""
    total = run_snippet(CONSTANTS)["a_plus_b"]
    assert (total.op, total.dtype) == (Ops.ADD, dtypes.int) and total.src[0] is total.src[1]


def test_G03_printed_nodes_name_what_is_shared_and_evaluate() -> None:
    """`x0:=UOp(...)` in the text; `eval` of the text is the node"""
    ran = run_snippet(CONSTANTS)
    text = "\n".join(ran.printed)
    assert text == (
        "UOp(Ops.ADD, dtypes.int, arg=None, src=(\n"
        "  x0:=UOp(Ops.CONST, dtypes.int, arg=2, src=()),\n"
        "   x0,))"
    )
    graph = ((Tensor([1.5, 2.5]) * 3).exp() + 1).sum().uop
    names = {"UOp": UOp, "Ops": Ops, "dtypes": dtypes, "AxisRole": AxisRole}
    for node in (ran["a_plus_b"], graph):
        assert eval(repr(node), dict(names)) is node and read_uop(repr(node)) is node


def test_G04_parts_of_a_node() -> None:
    """`type(y.uop)`, `.op`, `.src`, `.arg`, `.dtype`"""
    ran = run_snippet("""\
from tinygrad import Tensor

x = Tensor([1.0, 2.0, 3.0])
y = x + 1

print(type(y.uop))    # <class 'tinygrad.uop.UOp'>
print(y.uop.op)       # the operation type
print(y.uop.src)      # input UOps (the graph edges)
""")
    assert ran.printed[0].endswith(".UOp'>") and ran.printed[1] == "Ops.ADD"
    assert ran["y"].uop.src[0] is ran["x"].uop
    assert (ran["y"].uop.arg, ran["y"].uop.dtype) == (None, dtypes.float)


def test_G05_pattern_with_a_function_folds() -> None:
    """`PatternMatcher([(UPat, function)])` makes 4 of 2 + 2"""
    assert run_snippet(PATTERNS).printed[-1] == "UOp(Ops.CONST, dtypes.int, arg=4, src=())"


def test_G06_patterns_written_with_operators() -> None:
    """`UPat.cvar("c1") + UPat.cvar("c2")`, `c1.const_like(v)`"""
    ran = run_snippet(SUGAR)
    assert len(ran["simpler_pm"].patterns) == 1


def test_G07_results_of_two_matchers_are_one_object() -> None:
    """`graph_rewrite(x, pm)` gives the same object for both"""
    ran = run_snippet(SUGAR)
    rewrite = ran["graph_rewrite"]
    a, b = rewrite(ran["a_plus_b"], ran["simple_pm"]), rewrite(ran["a_plus_b"], ran["simpler_pm"])
    assert a is b is UOp(Ops.CONST, dtypes.int, arg=4)


def test_G08_import_path_of_patterns() -> None:
    """`from tinygrad.uop.ops import graph_rewrite, UPat, PatternMatcher`"""
    ran = run_snippet("from tinygrad.uop.ops import graph_rewrite, UPat, PatternMatcher, UOp, Ops")
    assert ran["UOp"] is UOp and ran["Ops"] is Ops


def test_G09_rewriting_is_visible() -> None:
    """fuse, rewrite, generate: the list of stages can be printed"""
    stages = commands.stages()
    for name in ("tidy", "cut into kernels", "simplify index terms", "linearize"):
        assert name in stages
    assert re.search(r"\bfires\b|algebra", explain(Tensor([1, 2, 3]) * 1 + 0))


def test_G10_identities_are_proven_rules() -> None:
    """x + 0, x * 1, 3 + 4: proven for each type; x + 0 is not for floats"""
    integers = Tensor([1, 2, 3, 4]).realize()
    assert "0 unproven" in explain(integers + 3 + 4)
    from seed_lines import debug_text

    printed = debug_text(3, lambda: (Tensor([list(range(20, 36))]).realize() + 3 + 4).realize())
    assert re.search(r"\b7\b", printed) and not re.search(r"i32 [34]\b", printed)
    zero = Tensor([-0.0]).realize() + 0
    assert str(zero.item()) == "0.0"  # x + 0 => x would print -0.0


@differs("D-7", "refuted, with a counterexample; only FASTMATH=real has it")
def test_G11_log_of_exp_is_no_identity(tmp_path: Path) -> None:
    """log(exp(x)) → x"""
    assert Tensor([200.0]).exp().log().item() == math.inf
    file = tmp_path / "mine.rules"
    file.write_text("ruleset mine over float32\nrule undo: log2(exp2(x)) => x\n")
    with pytest.raises(ValueError, match="undo"):
        load_rules(str(file))
    assert "log2(exp2(x)) => x" in (ROOT / "proofs/refuted/compilers.rules").read_text()
    assert "log2(exp2(x))" in commands.rules("fastmath_real")
    assert "log2(exp2(x))" not in commands.rules("algebra")


def test_G12_fusion_and_linearization_are_named() -> None:
    """loop fusion, linearization: named stages with tests"""
    stages = commands.stages()
    for name in ("merge loops", "cut into kernels", "linearize"):
        assert name in stages


def test_G13_pipeline_can_be_printed() -> None:
    """AST → UOp tree → rewrite rules → optimized UOp → codegen: `explain(t)`"""
    text = explain((Tensor([[1.0, 2.0]]) + 1).relu().sum())
    order = [text.index(name) for name in (
        "tidy", "cut into kernels", "movement to index terms", "simplify index terms", "linearize"
    )]  # fmt: skip
    assert order == sorted(order)


def test_G14_kernel_is_rewritten_to_a_sink() -> None:
    """`full_rewrite_to_sink(kernel_ast)`: SINK, STORE, INDEX, LOAD, CONST 7"""
    ran = run_snippet(
        """\
t = Tensor([1, 2, 3, 4])
t_plus_3_plus_4 = t + 3 + 4
t_plus_3_plus_4.kernelize()
kernel_ast = t_plus_3_plus_4.uop.src[1].arg.ast

from tinygrad.codegen import full_rewrite_to_sink
rewritten_ast = full_rewrite_to_sink(kernel_ast)
print(rewritten_ast)
""",
        Tensor=Tensor,
    )
    sink = ran["rewritten_ast"]
    assert sink.op is Ops.SINK
    ops = {node.op for node in sink.toposort()}
    assert {Ops.STORE, Ops.INDEX, Ops.LOAD, Ops.ADD, Ops.CONST} <= ops
    values = [node.arg for node in sink.toposort() if node.op is Ops.CONST]
    assert any(value in (7, (7,) * 4) for value in values)


SEED_OPS = [
    "COPY",
    "BUFFER",
    "UNIQUE",
    "DEVICE",
    "MUL",
    "ADD",
    "EXPAND",
    "RESHAPE",
    "CONST",
    "VIEW",
    "ASSIGN",
    "KERNEL",
    "SINK",
    "STORE",
    "INDEX",
    "DEFINE_GLOBAL",
    "SPECIAL",
    "LOAD",
    "PERMUTE",
    "PAD",
    "SHRINK",
    "STRIDE",
    "SUM",
    "MAX",
    "WHERE",
    "MULACC",
    "UNROLL",
    "GROUP",
    "CAST",
    "NEG",
    "SIN",
    "SQRT",
    "LOG2",
    "EXP2",
    "RECIP",
    "DIV",
    "MOD",
    "SUB",
    "POW",
    "CMPLT",
    "CMPEQ",
    "RELU",
    "NOOP",
    "EXP",
    "LOG",
]


@differs("D-14", "a table says which of ours stands for each name")
def test_G15_every_operation_of_the_documents_has_a_row() -> None:
    """44 names of operations"""
    rows = dict(re.findall(r"^\| `([A-Z_0-9]+)` \| (.+?) \|", page("ops.md"), re.MULTILINE))
    assert set(SEED_OPS) <= rows.keys()
    for name in SEED_OPS:
        for ours in re.findall(r"`Ops\.([A-Z_0-9]+)`", rows[name]):
            assert ours in Ops.__members__, f"{name}: {ours}"
        for method in re.findall(r"`Tensor\.([a-z_0-9]+)`", rows[name]):
            assert hasattr(Tensor, method), f"{name}: {method}"
        if name in Ops.__members__ and f"`Ops.{name}`" not in rows[name]:
            raise AssertionError(f"{name} is ours, but the table says {rows[name]}")


def test_G16_types_and_pointers_print() -> None:
    """`dtypes.int`, `dtypes.void`, `dtypes.int.ptr(4)`"""
    assert [repr(d) for d in (dtypes.int, dtypes.void, dtypes.int.ptr(4))] == [
        "dtypes.int",
        "dtypes.void",
        "dtypes.int.ptr(4)",
    ]


@later("VIZ, the explorer of rewrites in a browser")
def test_G17_rewriting_can_be_explored() -> None:
    """every rewrite, step by step"""
    run_snippet("from tinygrad.viz import serve")


def test_G18_tensor_graph_keeps_what_was_written() -> None:
    """`t + 3 + 4` shows two additions; the kernel has one"""
    ran = run_snippet(
        """\
t = Tensor([1, 2, 3, 4])
t_plus_3_plus_4 = t + 3 + 4

print(t_plus_3_plus_4.uop)  # Shows addition of 3 and 4 separately
""",
        Tensor=Tensor,
    )
    assert "\n".join(ran.printed).count("Ops.ADD") == 2
    from proofgrad.core.tensor.runtime.realize import compiler, graph_to_run

    (call,) = [
        call for call in compiler().kernel_graph(graph_to_run([ran["t_plus_3_plus_4"].uop], "CPU")).src
        if call.src[0].src[0].op is not Ops.COPY
    ]  # fmt: skip
    linear = compiler().linears(call.src[0], "CPU")[-1]
    assert [n.op for n in linear.src].count(Ops.ADD) == 1


def test_G19_sizes_may_be_variables() -> None:
    """symbolic shapes: `Variable`"""
    from proofgrad import Variable

    size = Variable("size", 1, 10)
    x = Tensor.arange(10).realize()
    part = x.shrink(((0, size.bind(4)),))
    assert part.sum().item() == 6
