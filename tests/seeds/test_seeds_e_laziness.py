"""Seed lines E01 to E07: laziness, identity, sharing."""

from __future__ import annotations

import pytest
from seed_lines import Count, debug_text, differs, page, run_snippet

from proofgrad import Ops, Tensor, UOp, explain


def test_E01_nothing_runs_until_values_are_wanted() -> None:
    """nothing runs before realize, numpy, item or tolist"""
    with Count() as building:
        ran = run_snippet("""\
from tinygrad import Tensor
# These don't compute anything yet
x = Tensor([1.0, 2.0, 3.0])
y = Tensor([4.0, 5.0, 6.0])
z = x * y + x
""")
    with Count() as running:
        run_snippet(
            "# Only realizes when needed\nresult = z.numpy()  # Triggers execution", z=ran["z"]
        )
    assert (building.count, running.count) == (0, 1)
    assert ran["z"].tolist() == [5.0, 12.0, 21.0]


def test_E02_equal_specifications_are_one_object() -> None:
    """`A = t * 4; B = t * 4`: `A.uop is B.uop`, `A is not B`"""
    run_snippet(
        """\
A = t * 4
B = t * 4

# Different Python objects
assert A is not B

# Same computational specification
assert A.uop is B.uop
""",
        t=Tensor([1, 2, 3, 4]),
    )


def test_E03_realizing_one_realizes_the_other() -> None:
    """realising A gives B its values too"""
    t = Tensor([1, 2, 3, 4])
    A, B = t * 4, t * 4
    A.realize()
    with Count() as kernels:
        ran = run_snippet(
            """\
# Both tensors now point to the same realized buffer
assert A.uop is B.uop

print(B.tolist())  # [4, 8, 12, 16] - no computation needed
""",
            A=A,
            B=B,
        )
    assert ran.printed == ["[4, 8, 12, 16]"] and kernels.count == 0


def test_E04_nodes_form_an_acyclic_graph() -> None:
    """a node has op, dtype, arg, src; identity is equality"""
    root = ((Tensor([1, 2]) + 1) * 2).uop
    order = root.toposort()
    place = {node: k for k, node in enumerate(order)}
    for node in order:
        assert isinstance(node, UOp) and all(place[s] < place[node] for s in node.src)
        assert node.op in Ops and hash(node) == hash(node) and node == node
        with pytest.raises(AttributeError):
            node.arg = 1
    assert len(set(order)) == len(order)


def test_E05_laziness_fuses_and_skips() -> None:
    """fusion, no unused work, no buffers in between"""
    x = Tensor([1.0, 2.0, 3.0]).realize()
    unused = (x * 5).exp().sum()
    used = ((x + 1) * 2 + 3).relu()
    with Count() as kernels:
        used.realize()
    assert kernels.count == 1
    assert unused.uop.op is not Ops.BUFFER
    assert explain(((x + 2) * 3).sum()).startswith("1 kernel, 0 copies")


def test_E06_lazy_and_eager_are_compared() -> None:
    """eager: three launches; lazy: one"""
    x = Tensor([1, 2, 3]).realize()
    with Count() as eager:
        y = (x + 1).realize()
        z = (y * 2).realize()
        _ = (z + 3).realize()
    with Count() as lazy:
        run_snippet(
            """\
y = x + 1       # Build graph node
z = y * 2       # Build graph node
w = z + 3       # Build graph node
result = w.numpy()  # Single fused kernel!
""",
            x=Tensor([1, 2, 4]).realize(),
        )
    assert (eager.count, lazy.count) == (3, 1)
    assert "eager" in page("coming-from-torch.md")


@differs("D-15", "the interface looks eager and is lazy, and the overview says so")
def test_E07_the_interface_looks_eager() -> None:
    """ "eager Tensor API" and "lazy by default" """
    assert "looks eager" in page("guide.md")
    assert "kernel" in debug_text(1, lambda: (Tensor([1.0, 5.0]) * 3).realize())
