"""Seed lines H01 to H14: schedules, fusion, memory."""

from __future__ import annotations

import re

from seed_lines import Count, debug_text, differs, page, run_snippet

from proofgrad import GlobalCounters, Ops, Tensor, explain
from proofgrad.core.compile.fusion.split_reductions import MANY_ELEMENTS


def kernels_of(tensor: Tensor) -> int:
    with Count() as kernels:
        tensor.realize()
    return kernels.count


def test_H01_schedule_lists_kernels_and_runs_none() -> None:
    """`t.schedule()`: items with `.ast`; nothing runs (D-8)"""
    with Count() as kernels:
        ran = run_snippet("""\
from tinygrad import Tensor

x = Tensor.randn(4, 4)
y = Tensor.randn(4, 4)
z = (x @ y).relu().sum(axis=0)

# Get the schedule without executing
sched = z.schedule()
print(f"{len(sched)} kernels")
for item in sched:
    print(item.ast)    # the abstract syntax tree for each kernel
""")
    assert kernels.count == 0
    assert re.fullmatch(r"\d+ kernels", ran.printed[0])
    assert len(ran["sched"]) >= 1 and all(item.ast.op is Ops.SINK for item in ran["sched"])


def test_H02_schedule_is_empty_after_realize() -> None:
    """the schedule before and after `.realize()`"""
    t = (Tensor([1, 2, 3]).realize() * 2).sum()
    assert len(t.schedule()) == 1
    t.realize()
    assert len(t.schedule()) == 0


def test_H03_kernelize_shows_the_kernel_in_the_graph() -> None:
    """`t.kernelize()`: ASSIGN(BUFFER, KERNEL); the kernel's AST at `t.uop.src[1].arg.ast`"""
    ran = run_snippet(
        """\
t_plus_3_plus_4 = t + 3 + 4
t_plus_3_plus_4.kernelize()
print(t_plus_3_plus_4.uop)
kernel_ast = t_plus_3_plus_4.uop.src[1].arg.ast
""",
        t=Tensor([1, 2, 3, 4]),
    )
    text = "\n".join(ran.printed)
    assert "ASSIGN" in text.splitlines()[0] and "KERNEL" in text and "BUFFER" in text
    assert ran["kernel_ast"].op is Ops.SINK
    assert ran["t_plus_3_plus_4"].tolist() == [8, 9, 10, 11]


def test_H04_chain_of_elementwise_operations_is_one_kernel() -> None:
    """+1, *2, relu: one kernel, on inputs that are there; the random numbers take one more"""
    ran = run_snippet(
        """\
a = Tensor.randn(4, 4).realize()   # no computation
b = a + 1                 # no computation - records ADD in graph
c = b * 2                 # no computation - records MUL in graph
d = c.relu()              # no computation - records RELU in graph
""",
        Tensor=Tensor,
    )
    assert kernels_of(ran["d"]) == 1


def test_H05_fused_chain_runs_once_and_parted_three_times() -> None:
    """`(a + b).relu().sum()` is one kernel; with `.realize()` between it is three"""
    a, b = Tensor([1.0, -2.0, 3.0]).realize(), Tensor([4.0, 0.5, -6.0]).realize()
    assert kernels_of((a + b).relu().sum()) == 1
    with Count() as parted:
        (b + a).realize().relu().realize().sum().realize()
    assert parted.count == 3


@differs(
    "D-9",
    "one kernel; from 65,536 elements on, blocks are reduced first, so that threads can share them",
)
def test_H06_sum_of_a_chain_is_one_kernel() -> None:
    """relu → *2 → sum: one kernel up to the reduction, and a final reduction"""
    ran = run_snippet(
        """\
# Three operations
x = Tensor.rand(1000).realize()
y = x.relu()        # max(x, 0)
z = y * 2           # scale
w = z.sum()         # reduce
""",
        Tensor=Tensor,
    )
    assert kernels_of(ran["w"]) == 1
    assert MANY_ELEMENTS == 65_536
    assert kernels_of((Tensor.rand(MANY_ELEMENTS).realize() * 2).sum()) in (2, 3)


def test_H07_reductions_of_reductions_part() -> None:
    """`(x @ y).relu().sum(axis=0)` is two kernels: a sum waits for sums"""
    x, y = Tensor.randn(64, 64).realize(), Tensor.randn(64, 64).realize()
    assert explain((x @ y).relu().sum(axis=0)).startswith("2 kernels, 0 copies")
    small = Tensor.randn(4, 4).realize()
    assert explain((small @ small).relu().sum(axis=0))[0] in "12"


def test_H08_kernels_can_be_predicted() -> None:
    """`(x.permute(1, 0) @ y.reshape(4, 4)).sum(axis=1)`: predict, then count; the guide says how"""
    x, y = Tensor.randn(64, 64).realize(), Tensor.randn(64 * 64).realize()
    assert explain((x.permute(1, 0) @ y.reshape(64, 64)).sum(axis=1)).startswith("2 kernels")
    assert "predict" in page("guide.md").lower()


def test_H09_movement_runs_no_kernel() -> None:
    """reshape, permute, expand, slices: no kernels"""
    ran = run_snippet(
        """\
x = Tensor.randn(4, 8, 16).realize()

# These don't copy data - they update the ShapeTracker:
a = x.reshape(32, 16)       # just relabels dimensions
b = x.permute(2, 0, 1)      # reorders access pattern
c = x.expand(10, 4, 8, 16)  # broadcasts (adds a new dimension)
d = x[1:3, :, ::2]          # slice + stride
""",
        Tensor=Tensor,
    )
    with Count() as kernels:
        Tensor.realize(*[ran[name] for name in "abcd"])
    assert kernels.count == 0


@differs(
    "D-10",
    "a view is told by `t.view_info()` and `t.st`: strides, offset, mask; no class tracks it",
)
def test_H10_views_are_described() -> None:
    """views: strides, offset, mask; `x.T` copies nothing"""
    ran = run_snippet(
        """\
# Example: Transpose without copying
x = Tensor.rand(100, 200).realize()
y = x.T  # No data movement!
""",
        Tensor=Tensor,
    )
    with Count() as kernels:
        y = ran["y"].realize()
    assert kernels.count == 0
    info = y.view_info()
    assert (info.shape, info.strides, info.offset, info.mask) == ((200, 100), (1, 200), 0, None)
    assert y.st == info
    part = ran["x"][2:5, ::-1].view_info()
    assert (part.strides, part.offset) == ((200, -1), 2 * 200 + 199)
    padded = ran["x"].pad(((1, 2), (0, 0))).view_info()
    assert (padded.strides, padded.offset, padded.mask) == ((200, 1), -200, ((1, 101), (0, 200)))
    assert ran["x"].expand(3, 100, 200).view_info().strides == (0, 200, 1)


def test_H11_buffers_are_used_again() -> None:
    """memory of a value that is no longer needed is given back and used again"""
    x = Tensor.rand(1000)
    y = (x * 2).contiguous()
    z = (y + 1).contiguous()
    GlobalCounters.reset()
    z.realize()
    text = debug_text(2, lambda: ((Tensor.rand(1003) * 2).contiguous() + 1).contiguous().realize())
    assert re.search(r"peak|mem", text)


def test_H12_unused_work_is_skipped() -> None:
    """unused values are not computed"""
    x = Tensor([1.0, 2.0, 3.0, 4.0]).realize()
    both = Tensor.stack(x.exp(), x * 2)
    assert kernels_of(both[1]) == 1
    _ = (x + 100).sum()
    assert kernels_of(x - 1) == 1


def test_H13_gelu_fused_and_in_steps() -> None:
    """gelu in one kernel, or in as many as it has steps"""
    x = Tensor.randn(1000).realize()
    assert kernels_of(x * 0.5 * (1 + (x / 2**0.5).erf())) == 1
    with Count() as steps:
        scaled = (x / 2**0.5).realize()
        inner = (scaled.erf().realize() + 1).realize()
        ((x * 0.5).realize() * inner).realize()
    assert steps.count == 5


def test_H14_kernels_carry_the_names_of_methods() -> None:
    """the kernel knows the methods it came from: `<SINK __add__>`"""
    text = debug_text(2, lambda: (Tensor([1.0, 2.0, 3.5]).realize() + 9.25).relu().realize())
    assert re.search(r"__add__|\badd\b", text) and "relu" in text
