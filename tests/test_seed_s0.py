"""The snippets of the first seed document, with the import name changed, in its order.

What is not here is listed in docs/seeds.md with its reason.
"""

from __future__ import annotations

import pytest

from proofgrad import Device, GlobalCounters, Tensor, dtypes


def test_first_steps_create_and_use_a_tensor(capsys: pytest.CaptureFixture[str]) -> None:
    t = Tensor([1, 2, 3, 4])
    print(t)
    doubled = t * 2
    print(doubled.tolist())
    result = t + 3 + 4
    print(result.tolist())  # the document prints [8, 10, 12, 14], which is not t + 7
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        "<Tensor <UOp CPU (4,) int (Ops.COPY, 'CPU')> on CPU with grad None>",
        "[2, 4, 6, 8]",
        "[8, 9, 10, 11]",
    ]


def test_the_device_is_a_name_that_can_be_assigned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Device, "_chosen", None)  # given back after the test
    assert Device.DEFAULT in Device.get_available_devices()
    Device.DEFAULT = "CPU"
    assert Device.DEFAULT == "CPU"


def test_lazy_tensor_has_device_type_and_shape() -> None:
    t = Tensor([1, 2, 3, 4])
    assert t.device == Device.DEFAULT
    assert t.dtype == dtypes.int
    assert t.shape == (4,)


def test_uop_before_and_after_realize() -> None:
    t = Tensor([1, 2, 3, 4])
    before = repr(t.uop)
    assert before.startswith("UOp(Ops.COPY, dtypes.int, ")
    assert "UOp(Ops.BUFFER, dtypes.int, arg=4, src=(" in before
    assert "UOp(Ops.DEVICE, dtypes.void, arg='PYTHON', src=())" in before
    t.realize()
    after = repr(t.uop)
    assert after.startswith("UOp(Ops.BUFFER, dtypes.int, arg=4, src=(")
    assert "UOp(Ops.DEVICE, dtypes.void, arg='CPU', src=())" in after


def test_operations_build_graphs_and_give_values() -> None:
    t_times_2 = Tensor([1, 2, 3, 4]).realize() * 2
    names = [node.op.name for node in t_times_2.uop.toposort()]
    assert names[-1] == "MUL"
    assert names.index("CONST") < names.index("RESHAPE") < names.index("EXPAND")
    assert t_times_2.tolist() == [2, 4, 6, 8]


def test_smart_deduplication_shares_nodes_and_work() -> None:
    t = Tensor([1, 2, 3, 4])
    A = t * 4
    B = t * 4
    assert A is not B
    assert A.uop is B.uop
    A.realize()
    assert A.uop is B.uop
    before = GlobalCounters.kernel_count
    assert B.tolist() == [4, 8, 12, 16]
    assert GlobalCounters.kernel_count == before


def test_automatic_differentiation_of_a_polynomial() -> None:
    x = Tensor([2.0], requires_grad=True)
    y = x**2 + 3 * x + 1
    loss = y.sum()
    assert x.item() == 2.0
    assert y.item() == 11.0
    (grad,) = loss.gradient(x)
    assert grad.item() == 7.0


def test_automatic_differentiation_by_the_chain_rule() -> None:
    x = Tensor([2.0], requires_grad=True)
    z = (x**2 + 1).log()
    loss = z.sum()
    assert x.item() == 2.0
    assert z.item() == pytest.approx(1.6094379, rel=1e-6)
    (grad,) = loss.gradient(x)
    assert grad.item() == pytest.approx(0.8, rel=1e-6)


def test_graph_shows_both_additions_and_the_kernel_one() -> None:
    t_plus_3_plus_4 = Tensor([1, 2, 3, 4]) + 3 + 4
    assert repr(t_plus_3_plus_4.uop).count("Ops.ADD") == 2
    from proofgrad.core.tensor import realize

    realized = Tensor([1, 2, 3, 4]).realize() + 3 + 4
    graph, _ = realize._numbered([realized.uop], "CPU")
    (call,) = realize.compiler().kernel_graph(graph).src
    linear = realize.compiler().linears(call.src[0], "CPU")[-1]
    constants = {node.arg for node in linear.src if node.op.name == "CONST" and node.dtype.is_int}
    assert 7 in constants or (7,) * 4 in constants
    assert not constants & {3, (3,) * 4}


def test_low_level_uops_are_unique_and_print() -> None:
    from proofgrad import dtypes
    from proofgrad.uop import Ops, UOp

    a = UOp(Ops.CONST, dtypes.int, arg=2)
    b = UOp(Ops.CONST, dtypes.int, arg=2)
    assert a is b
    assert repr(a + b) == (
        "UOp(Ops.ADD, dtypes.int, arg=None, src=(\n"
        "  x0:=UOp(Ops.CONST, dtypes.int, arg=2, src=()),\n"
        "   x0,))"
    )


def test_pattern_matching_folds_constants() -> None:
    from proofgrad.uop import Ops, UOp
    from proofgrad.uop.ops import PatternMatcher, UPat, graph_rewrite

    a_plus_b = UOp(Ops.CONST, dtypes.int, arg=2) + UOp(Ops.CONST, dtypes.int, arg=2)
    simple_pm = PatternMatcher(
        [
            (
                UPat(Ops.ADD, src=(UPat(Ops.CONST, name="c1"), UPat(Ops.CONST, name="c2"))),
                lambda c1, c2: UOp(Ops.CONST, dtype=c1.dtype, arg=c1.arg + c2.arg),
            ),
        ]
    )
    simplified = graph_rewrite(a_plus_b, simple_pm)
    assert repr(simplified) == "UOp(Ops.CONST, dtypes.int, arg=4, src=())"
    simpler_pm = PatternMatcher(
        [(UPat.cvar("c1") + UPat.cvar("c2"), lambda c1, c2: c1.const_like(c1.arg + c2.arg))]
    )
    assert graph_rewrite(a_plus_b, simple_pm) is graph_rewrite(a_plus_b, simpler_pm)
