"""Choices between two ways of computing: the longer one is behind a branch, and the values are the same."""

from __future__ import annotations

import random

import numpy as np
import pytest
from test_cpu_target import running

from proofgrad import Context, Tensor, nn
from proofgrad.backends.llvm import printer_state
from proofgrad.backends.llvm import two_ways as module
from proofgrad.backends.llvm.dialect import Dialect
from proofgrad.backends.llvm.emit import emit
from proofgrad.backends.llvm.two_ways import TwoWays, two_ways
from proofgrad.core.compile.machine.machine import Core
from proofgrad.core.compile.machine.target import Target
from proofgrad.core.compile.passes.stages import parts_of, run_stages
from proofgrad.core.ir.dtypes import DType, dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.runtime.realize import compiler
from proofgrad.rules.pipeline import KERNEL_STAGES

# One that looks far ahead computes one vector at a time.
AVX512 = Target(
    "avx512", vector_bytes=64, vector_registers=32, core=Core(foreseen_instructions=2000)
)
EDGES = [0.0, -0.0, np.inf, -np.inf, np.nan, 65535.99, 65536.0, -65536.0, 1e-45, 3e38, 1e30, 0.25]


def linear_of(*functions: Ops) -> UOp:
    """The kernel of the product of functions of 64 floats."""
    x = UOp(Ops.PARAM, dtypes.float32, (), (1, 64))
    value = x
    for k, function in enumerate(functions):
        made = UOp(function, dtypes.float32, (x,))
        value = made if k == 0 else UOp(Ops.MUL, dtypes.float32, (value, made))
    made = run_stages(KERNEL_STAGES, UOp.sink(value), compiler().library, AVX512)
    (linear,) = parts_of(made)
    return linear


def test_far_angles_are_computed_behind_a_branch() -> None:
    linear = linear_of(Ops.SIN)
    ((choice, way),) = two_ways(linear).items()
    assert way.choices[0] is choice and len(way.choices) == 2 and way.operand == 2
    assert sum(n.op is Ops.TRUNC for n in way.nodes) == 6
    text = emit(linear, "kernel", Dialect()).text
    near, far = text.split("\nway0:\n")
    assert "llvm.trunc" not in near and "llvm.trunc" in far.split("way0.end:")[0]


def test_choices_by_one_condition_have_one_branch() -> None:
    linear = linear_of(Ops.SIN, Ops.COS)
    (way,) = two_ways(linear).values()
    assert len(way.choices) == 4 and sum(n.op is Ops.TRUNC for n in way.nodes) == 6
    assert emit(linear, "kernel", Dialect()).text.count("phi <16 x double>") == 4


def test_what_is_always_needed_has_no_branch() -> None:
    assert not two_ways(linear_of(Ops.EXP2))


def test_logarithms_of_all_but_normal_numbers_are_computed_behind_a_branch() -> None:
    linear = linear_of(Ops.LOG2)
    ((choice, way),) = two_ways(linear).items()
    assert way.choices == (choice,) and way.operand == 2
    assert sum(n.op is Ops.WHERE for n in way.nodes) == 5
    near, far = emit(linear, "kernel", Dialect()).text.split("\nway0:\n")
    assert "select" not in near and "select" in far.split("way0.end:")[0]


def block_of(values: list[UOp]) -> UOp:
    """What a kernel computes in one block, sources first."""
    return UOp(Ops.LINEAR, dtypes.void, tuple(UOp.sink(*values).toposort()[:-1]))


def leaf(slot: int, dtype: DType = dtypes.float32) -> UOp:
    memory = UOp(Ops.PARAM, dtype, (), (slot, 1))
    return UOp(Ops.LOAD, dtype, (UOp(Ops.INDEX, dtype, (memory, UOp.index(0))),))


def longer(value: UOp, operations: int) -> UOp:
    for k in range(operations):
        value = value * 0.5 + float(k)
    return value


def drawn_block(draw: random.Random) -> UOp:
    """Choices within choices, some by one condition, beside each other, with values that several need."""
    truths = [leaf(k, dtypes.bool) for k in range(draw.randint(1, 9))]
    values = [leaf(10 + k) for k in range(4)]
    for k in range(draw.randint(4, 12)):
        x = draw.choice(values[-draw.randint(1, 4) :])
        x = longer(x if draw.random() < 0.7 else leaf(20 + k), draw.choice([0, 1, 14, 30]))
        y = draw.choice([leaf(40 + k) + 1.0, values[-2], longer(leaf(60 + k), 3)])
        is_sum = draw.random() < 0.3
        values.append(x + y if is_sum else draw.choice(truths).where(*draw.sample([x, y], 2)))
    return block_of(values[-draw.randint(1, 6) :])


def ways_one_by_one(linear: UOp) -> dict[UOp, TwoWays]:
    """Those of all conditions; of two that share nodes the longer."""
    users, position = {}, {node: k for k, node in enumerate(linear.src)}
    by_condition: dict[UOp, list[UOp]] = {}
    for node in linear.src:
        for source in node.src:
            users.setdefault(source, []).append(node)
        if node.op is Ops.WHERE:
            by_condition.setdefault(node.src[0], []).append(node)
    ways = [module._way(choices, position, users) for choices in by_condition.values()]
    found, written = {}, set()
    for way in sorted([w for w in ways if w is not None], key=lambda way: -len(way.nodes)):
        own = {*way.choices, *way.nodes, *way.before}
        if written.isdisjoint(own):
            written |= own
            found[way.choices[0]] = way
    return found


@pytest.mark.parametrize("seed", range(20))
def test_ways_are_those_that_are_found_one_by_one(seed: int) -> None:
    draw, several = random.Random(seed), 0
    for _ in range(40):
        linear = drawn_block(draw)
        found = two_ways(linear)
        assert [*found.items()] == [*ways_one_by_one(linear).items()]
        several += len(found) > 1
    assert several


def test_choices_within_the_way_of_another_are_not_looked_at_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As of a hundred memories that were joined: of each choice all others are the longer way."""
    asked, way = [], module._way
    monkeypatch.setattr(module, "_way", lambda *args: asked.append(args) or way(*args))
    value = leaf(100)
    for k in range(100):
        value = leaf(k, dtypes.bool).where(leaf(200 + k) + 1.0, longer(value, 1))
    ((choice, found),) = two_ways(block_of([value])).items()
    assert choice is value and found.operand == 2 and len(asked) == 1


@pytest.mark.parametrize("processor", ["native", "haswell", "x86-64-v2"])
@pytest.mark.parametrize("size", [1, 5, 16, 67])
def test_logarithms_of_all_numbers_beside_each_other(processor: str, size: int) -> None:
    with running(processor):
        rng = np.random.default_rng(size)
        usual = 2.0 ** rng.uniform(-126, 128, size)
        for values in (usual, np.resize([*EDGES, *usual], size), -usual):
            x = values.astype(np.float32)
            with np.errstate(invalid="ignore", divide="ignore"):
                exact = np.log2(x.astype(float)).astype(np.float32)
            np.testing.assert_array_max_ulp(Tensor(x).log2().numpy(), exact, 1)


def test_what_others_need_is_no_part_of_a_way() -> None:
    linear = linear_of(Ops.SIN)
    ((choice, way),) = two_ways(linear).items()
    trunc = next(n for n in way.nodes if n.op is Ops.TRUNC)
    used = UOp(Ops.ADD, trunc.dtype, (trunc, trunc))
    at = linear.src.index(choice)
    more = linear.replace(src=(*linear.src[:at], used, *linear.src[at:]))
    (other,) = two_ways(more).values()
    assert trunc in way.nodes and trunc not in other.nodes


def test_of_two_ways_that_share_nodes_the_longer_has_the_branch() -> None:
    """Choices of the slope of a power are part of its logarithm's way, and needed behind it."""
    x, y = Tensor(np.array([0.5, 1.5, 2.0, 3.0])), Tensor(np.array([-1.0, 0.5, 1.0, 2.0]))
    (slope,) = (x**y).sum().gradient(y)
    exact = x.numpy() ** y.numpy() * np.log(x.numpy())
    np.testing.assert_allclose(slope.numpy(), exact, rtol=1e-14)


@pytest.mark.parametrize("processor", ["native", "haswell", "x86-64-v2"])
@pytest.mark.parametrize("size", [1, 5, 16, 67])
def test_values(processor: str, size: int) -> None:
    """Lanes of both ways beside each other, and vectors of one alone."""
    with running(processor):
        rng = np.random.default_rng(size)
        near, far = rng.normal(size=size) * 100, rng.normal(size=size) * 1e9
        mixed = np.where(rng.random(size) < 0.5, near, far)
        for values in (near, far, mixed, np.resize(EDGES, size)):
            x = values.astype(np.float32)
            with np.errstate(invalid="ignore"):
                sine, cosine = np.sin(x.astype(float)), np.cos(x.astype(float))
            for found, exact in ((Tensor(x).sin(), sine), (Tensor(x).cos(), cosine)):
                np.testing.assert_array_almost_equal_nulp(
                    found.numpy()[~np.isnan(exact)], exact[~np.isnan(exact)].astype(np.float32), 1
                )
                assert (np.isnan(found.numpy()) == np.isnan(exact)).all()
            both = (Tensor(x).sin() + Tensor(x).cos() * 2).numpy()
            np.testing.assert_allclose(both, sine + 2 * cosine, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("negated", [False, True])
def test_the_longer_way_may_be_either_operand(negated: bool) -> None:
    x = Tensor(np.linspace(-3, 3, 61, dtype=np.float32))
    long = x
    for k in range(30):
        long = long * x + k
    condition, ways = x > 2.5, (long, x * x + 1)
    found = (
        condition.logical_not().where(*ways[::-1]) if negated else condition.where(*ways)
    ).numpy()
    values = x.numpy().astype(float)
    exact = values
    for k in range(30):
        exact = exact * values + k
    np.testing.assert_allclose(found, np.where(values > 2.5, exact, values**2 + 1), rtol=1e-5)


def test_gradients_of_a_recurrent_layer_are_those_without_branches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A choice by the same condition stands inside of a longer way: of a slope of tanh behind a sigmoid."""
    layer, given = nn.LSTM(4, 6), np.random.default_rng(2).normal(size=(2, 4)).astype(np.float32)
    weights = [weight.requires_grad_() for weight in nn.state.get_parameters(layer)]

    def gradients() -> list[bytes]:
        x = Tensor(given, requires_grad=True)
        found, (h, c) = layer(x)
        slopes = (found.square().sum() + h.sum() + c.sum()).gradient(x, *weights)
        Tensor.realize(found, h, c, *slopes)
        return [bytes(slope.data()) for slope in slopes]

    with Context(PLANS=0):
        branched = gradients()
        monkeypatch.setattr(printer_state, "two_ways", lambda linear: {})
        assert gradients() == branched
