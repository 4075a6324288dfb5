"""Functions whose graph is made once: one node at each call, whose value, gradient and plan are those of the graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from proofgrad import Context, Tensor, TinyJit, Variable, dtypes
from proofgrad.core.ir import uop as uop_module
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.text import read_uop, show_uop
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.data.bodies import value_of_body, without_bodies
from proofgrad.core.tensor.methods import made_once as made_once_module
from proofgrad.core.tensor.methods.made_once import made_once
from proofgrad.core.tensor.runtime import canonical, runs_of_a_kind
from proofgrad.core.tensor.runtime import realize as machine
from proofgrad.core.tensor.runtime.canonical import computed
from proofgrad.core.tensor.runtime.realize import graph_and_inputs, graph_to_run
from proofgrad.verify.sampled.launch_memory import check_numbers
from proofgrad.verify.sampled.launch_plan import PlanError

CALLS: list[tuple[int, ...]] = []


@made_once
def waves(x: Tensor, power: int, scale: float = 1.0) -> Tensor:
    """A function that is of more than one use of its argument."""
    CALLS.append(x.shape)
    return (x.sin() * scale) ** power + x[..., ::-1] * x


def plain(x: Tensor, power: int, scale: float = 1.0) -> Tensor:
    return waves.__wrapped__(x, power, scale)  # type: ignore[attr-defined]


@made_once
def twice(x: Tensor) -> Tensor:
    return waves(waves(x, 2), 2, scale=0.5)


def numbers(*shape: int) -> Tensor:
    return Tensor(np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32))


def test_graph_is_made_once_for_each_type_shape_and_option() -> None:
    CALLS.clear()
    for x in (numbers(2, 9), numbers(2, 9) + 1, numbers(9), numbers(2, 9).cast("float64")):
        for _ in range(2):
            waves(x, 3)
    for scale in (0, 0.0, -0.0, False, 0.0):
        waves(numbers(2, 9), 3, scale=scale)
    assert CALLS == [(2, 9), (9,), *[(2, 9)] * 5]


@pytest.mark.parametrize("shape", [(), (0,), (1,), (7,), (3, 5)], ids=str)
def test_value_is_that_of_the_graph(shape: tuple[int, ...]) -> None:
    x = numbers(*shape).reshape((*shape, 1)) + 1
    for function, same in (
        (waves, plain),
        (lambda t, _: twice(t), lambda t, _: plain(plain(t, 2), 2, 0.5)),
    ):
        np.testing.assert_array_equal(function(x, 2).numpy(), same(x, 2).numpy())
        assert without_bodies(function(x, 2)._uop) is not function(x, 2)._uop


def test_gradient_passes_through_as_through_the_graph() -> None:
    """To the argument, to what it is made of, to a result on the way; and once more."""
    for function in (waves, plain):
        x = numbers(3, 5)
        x.requires_grad = True
        middle = function(x * 2, 3)
        (first,) = (middle * middle).sum().gradient(x)
        (second,) = (first * first).sum().gradient(x)
        (middle * middle).sum().backward()
        found = [first.numpy(), second.numpy(), x.grad.numpy(), middle.grad.numpy()]  # type: ignore[union-attr]
        if function is waves:
            of_body = found
    for one, other in zip(of_body, found):
        np.testing.assert_allclose(one, other, rtol=2e-6, atol=1e-5)


def test_second_call_walks_through_no_body(monkeypatch: pytest.MonkeyPatch) -> None:
    shapes: list[UOp] = []
    monkeypatch.setattr(
        canonical, "without_bodies", lambda graph: shapes.append(graph) or without_bodies(graph)
    )
    canonical._WITHOUT_BODIES.clear()
    for k in range(3):
        x = numbers(4, 11).contiguous().realize() if k else numbers(4, 11).realize()
        waves(x, 5)[1:3].realize()
    assert len(shapes) == 1


def test_variables_and_modes() -> None:
    size = Variable("size", 1, 9)
    x = numbers(9)
    for n in (3, 8):
        part = waves(x[: size.bind(n)], 2)
        assert part._uop.op is not Ops.APPLY
        np.testing.assert_array_equal(part.numpy(), plain(numbers(9)[:n], 2).numpy())
    with Tensor.no_grad():
        assert twice(x).numpy().tolist() == twice(numbers(9)).numpy().tolist()


def test_recorded_function_reads_its_argument_anew() -> None:
    jitted = TinyJit(lambda x: twice(x).realize())
    for k in range(5):
        x = (numbers(3, 4) + k).realize()
        np.testing.assert_array_equal(jitted(x).numpy(), plain(plain(x, 2), 2, 0.5).numpy())


def test_body_of_a_call_may_hold_one() -> None:
    x = numbers(6)
    body = waves(x.as_param(0) * 2, 2)
    np.testing.assert_array_equal(x.call(fxn=body).numpy(), plain(x * 2, 2).numpy())
    with pytest.raises(ValueError, match="parameter 0 of a body has no value"):
        body.numpy()


def test_check_tells_another_graph_apart() -> None:
    """CHECK=1 looks into bodies, and at what their parameters became."""
    x = numbers(2, 3).realize()
    root = twice(x)._uop
    asked, inputs = canonical.numbered([root], x.device)
    graph = canonical.as_compiled(asked)
    handles = [canonical_memory(buffer) for buffer in inputs]
    check_numbers([root], graph, inputs, handles, {})
    for wrong in (waves(x, 3), waves(x, 2), twice(x.T.contiguous()).T, waves(waves(x, 2), 2, 0.25)):
        with pytest.raises(PlanError):
            check_numbers([wrong._uop], graph, inputs, handles, {})


def canonical_memory(buffer: UOp) -> object:
    from proofgrad.core.tensor.runtime.memory import memory_of

    return memory_of(buffer)


def test_sort_is_few_nodes_and_the_same_graph_each_time() -> None:
    x = numbers(20, 700).realize()
    values, positions = x.sort()
    assert len(values._uop.toposort()) < 12 and len(positions._uop.toposort()) < 12
    applied = next(n for n in positions._uop.toposort() if n.op is Ops.APPLY)
    assert len(value_of_body(applied).toposort()) > 300
    other = numbers(20, 700).realize().sort()[1]
    assert next(n for n in other._uop.toposort() if n.op is Ops.APPLY).arg is applied.arg


def test_text_of_an_applied_body_is_read_again() -> None:
    body = twice(numbers(2, 3))._uop.arg  # which holds others
    assert read_uop(show_uop(body)) is body


# -- methods that are made once -----------------------------------------------------------------------

OF_ELEMENTS = [
    "expm1",
    "log1p",
    "atan",
    "asin",
    "acos",
    "sinh",
    "cosh",
    "tanh",
    "asinh",
    "acosh",
    "atanh",
    "erf",
    "sigmoid",
    "silu",
    "gelu",
    "quick_gelu",
    "mish",
    "softplus",
    "relu",
    "elu",
    "celu",
    "selu",
    "softsign",
    "hardsigmoid",
    "hardswish",
    "hardtanh",
    "logsigmoid",
    "softmax",
    "log_softmax",
    "layernorm",
    "mean",
    "var",
    "std",
    "norm",
    "argmax",
    "logsumexp",
    "round",
    "cumsum",
    "logcumsumexp",
    "tril",
    "triu",
    "any",
    "all",
]
OF_TWO: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "@": lambda x, y: x @ y.T,
    "@ of a line": lambda x, y: x @ y[0],
    "cat": lambda x, y: x.cat(y, x, dim=1),
    "stack": lambda x, y: x.stack(y),
    "roll": lambda x, y: (x + y).roll(2, 0),
    "pad of edges": lambda x, y: x.pad((2, 1, 1, 1), mode="replicate"),
    "pad of a circle": lambda x, y: x.pad((1, 0, -1, 1), mode="circular"),
    "//": lambda x, y: x // y,
    "%": lambda x, y: x % 0.75,
    "einsum": lambda x, y: Tensor.einsum("ij,kj->ik", x, y),
    "conv2d": lambda x, y: x[None, None].conv2d(y[None, None, :2, :1], stride=2, padding=1),
    "cumprod": lambda x, y: x.cumprod(1),
    "cummax": lambda x, y: x.cummax(1)[0],
    "one_hot": lambda x, y: (x * 0).int().one_hot(4),
    "diag": lambda x, y: (x + y)[0].diag(),
    "max_pool2d": lambda x, y: x[None, None].max_pool2d((2, 1), 1),
    "avg_pool2d": lambda x, y: x[None, None].avg_pool2d((2, 1), padding=(0, 1)),
    "interpolate": lambda x, y: x[None].interpolate((7,)),
    "batchnorm": lambda x, y: x.batchnorm(y[0], None, y[0], y[0], axis=1),
    "linear": lambda x, y: x.linear(y.T, y[:, 0]),
    "attention": lambda x, y: x.scaled_dot_product_attention(y, y, is_causal=True),
    "scatter": lambda x, y: x.scatter(0, (y * 0).int(), y),
    "scatter_reduce": lambda x, y: x.scatter_reduce(0, (y * 0).int(), y, "sum"),
    "sparse_categorical_crossentropy": lambda x, y: x.sparse_categorical_crossentropy(
        (y[:, 0] * 0).int(), label_smoothing=0.1
    ),
    "cross_entropy": lambda x, y: x.cross_entropy((y[:, 0] * 0).int()),
    "cross_entropy of shares": lambda x, y: x.cross_entropy(y),
    "nll_loss": lambda x, y: x.nll_loss((y[:, 0] * 0).int(), y[0], ignore_index=3),
    "binary_crossentropy": lambda x, y: x.sigmoid().binary_crossentropy(y),
    "binary_crossentropy_logits": lambda x, y: x.binary_crossentropy_logits(y, pos_weight=y[0]),
    "mse_loss": lambda x, y: x.mse_loss(y, reduction="sum"),
    "l1_loss": lambda x, y: x.l1_loss(y),
    "huber_loss": lambda x, y: x.huber_loss(y, delta=0.5),
    "smooth_l1_loss": lambda x, y: x.smooth_l1_loss(y, reduction="none"),
    "kl_div": lambda x, y: x.kl_div(y, log_target=True),
    "gather": lambda x, y: x.gather(0, (y * 0).int()),
    "[]": lambda x, y: x[:, (y[0] * 0).int()],
    "[] of two": lambda x, y: x[(y[0] > 0).int(), (y[1] * 0).int()],
}
CALLED: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    **{name: lambda x, _, name=name: getattr(x, name)() for name in OF_ELEMENTS},
    **OF_TWO,
}


def by_each_node(monkeypatch: pytest.MonkeyPatch, call: Callable[[], Any]) -> Any:
    """What a call gives where all nodes are made at each call, as where somebody traces them."""
    with monkeypatch.context() as patch:
        patch.setattr(made_once_module, "is_plain", lambda shape: False)
        return call()


@pytest.mark.parametrize("name", CALLED)
def test_what_is_compiled_is_the_same_graph(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the value and of the gradients: the same kernels, on the way of each function too."""
    call = CALLED[name]
    for shape, dtype in (((3, 5), "float32"), ((2, 1), "float64"), ((7, 7), "float16")):
        x, y = [(numbers(*shape) + k).cast(dtype).realize() for k in (1, 2)]
        x.requires_grad = True

        def nodes(x: Tensor = x, y: Tensor = y) -> list[UOp]:
            value = call(x * 2, y)
            if not value.dtype.is_float:
                return [value._uop]
            return [value._uop, value.square().sum().gradient(x)[0]._uop]

        once, each = nodes(), by_each_node(monkeypatch, nodes)
        each = [without_bodies(node) for node in each]  # gradients are made once in their own way
        assert [without_bodies(node) for node in once] == each
        graphs = [graph_to_run(found, "CPU").toposort() for found in (once, each)]
        assert len(graphs[0]) == len(graphs[1])


@pytest.mark.parametrize("name", CALLED)
def test_second_call_makes_few_nodes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = numbers(3, 5).realize(), (numbers(3, 5) + 1).realize()
    first = CALLED[name](x, y)
    made: list[Ops] = []
    fresh = uop_module.fresh_node
    for module in (uop_module, made_once_module):
        monkeypatch.setattr(
            module, "fresh_node", lambda op, *parts: made.append(op) or fresh(op, *parts)
        )
    second = CALLED[name](x + 1, y)
    assert Ops.APPLY in made and len(made) <= 14, made
    assert second._uop is not first._uop


def test_ones_on_a_diagonal_are_made_once_for_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    Tensor.eye(3, 5)
    made: list[Ops] = []
    fresh = uop_module.fresh_node
    monkeypatch.setattr(
        uop_module, "fresh_node", lambda op, *parts: made.append(op) or fresh(op, *parts)
    )
    found = Tensor.eye(3, 5)
    assert len(made) <= 1, made
    assert found.tolist() == np.eye(3, 5).tolist()
    assert Tensor.eye(2, dtype="int8").tolist() == [[1, 0], [0, 1]]


def test_type_by_default_that_changes_between_two_calls_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What a graph depends on is part of what it is kept for."""
    for kind in (dtypes.float32, dtypes.float64, dtypes.float32):
        monkeypatch.setattr(dtypes, "default_float", kind)
        for call in (Tensor([3]).elu, Tensor([3]).acosh, Tensor([2.0], dtype="float32").acosh):
            assert call().dtype is by_each_node(monkeypatch, call).dtype


def test_setting_that_changes_between_two_calls_counts() -> None:
    """How a graph is compiled is asked at each run; what else changes it is an argument of the function that is made once."""
    a, b = Tensor([[1.0 + 2.0**-12]]).realize(), Tensor([[1.0]]).realize()
    for asked, found in (("0", 1.0 + 2.0**-12), ("1", 1.0), ("0", 1.0 + 2.0**-12)):
        with Context(ALLOW_TF32=asked):
            assert (a @ b).item() == found
    x = Tensor([-0.0]).realize()
    for asked in ("", "nsz", ""):
        with Context(FASTMATH=asked):
            assert x.tanh().item() == 0.0


def test_no_gradient_within_no_grad_and_one_behind_it() -> None:
    x = Tensor([0.5], requires_grad=True)
    with Tensor.no_grad():
        held = x.exp()
    (x.exp() + held).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), np.exp([0.5]), rtol=1e-6)  # type: ignore[union-attr]


def test_gradient_reads_what_was_computed_on_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """A result that a gradient leads from keeps its graph, and its memory is read in place of it."""

    def graph() -> UOp:
        x = Tensor(np.ones((4, 4), np.float32), requires_grad=True).realize()
        middle = (x @ x).sigmoid().realize()
        (found,) = (middle * middle).sum().gradient(x)
        compiled, inputs = graph_and_inputs([found._uop], "CPU")
        assert computed(middle._uop).src[0] in inputs
        return compiled

    assert graph() is by_each_node(monkeypatch, graph)


def test_options_that_may_change_are_looked_at_in_each_call() -> None:
    x, slope = Tensor([-1.0, 2.0]), Tensor([3.0])
    for factor in (3.0, 5.0):
        slope.assign(Tensor([factor])).realize()
        np.testing.assert_allclose(x.elu(slope).numpy(), [np.expm1(-1) * factor, 2], rtol=1e-6)
        np.testing.assert_allclose(
            x.elu(alpha=slope).numpy(), [np.expm1(-1) * factor, 2], rtol=1e-6
        )
    assert x.norm(dim=[0]).item() == pytest.approx(5**0.5)
    assert x.elu(np.float32(2)).tolist()[1] == 2.0


def test_uop_shows_the_graph_and_parameters_of_users() -> None:
    x = numbers(2, 3).realize()
    ops = [node.op for node in x.exp().uop.toposort()]
    assert Ops.EXP in ops and Ops.APPLY not in ops
    assert x.exp().uop is x.exp().uop
    shown = [node.op for node in x.as_param(0).exp().uop.toposort()]
    assert Ops.PARAM in shown and Ops.APPLY not in shown


@pytest.mark.usefixtures("fresh_runs")
def test_many_functions_of_one_shape_are_all_known_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are of one op, and each is looked for among those of its own body."""
    monkeypatch.setattr(runs_of_a_kind, "MANY", 1)
    x = numbers(3, 5).realize()
    for function in (Tensor.exp, Tensor.tanh):
        function(x).realize()
    for function in (Tensor.exp, Tensor.tanh):
        assert machine.run_again(function(x)._uop, "CPU", True) is not None


# -- functions of several Tensors, or that give several ---------------------------------------------------


def test_tensors_by_name_nothing_in_their_place_and_several_results() -> None:
    @made_once
    def both(x: Tensor, y: Tensor | None = None, *, scale: Tensor | None = None) -> Any:
        CALLS.append(x.shape)
        first = x if y is None else x * y
        return first + 1, first if scale is None else first / scale

    CALLS.clear()
    a, b = numbers(2, 3), numbers(2, 3) + 2
    for options in ({}, {"y": b}, {"scale": b}, {"y": b, "scale": b + 1}):
        for _ in range(2):
            for found, wanted in zip(both(a, **options), both.__wrapped__(a, **options)):
                np.testing.assert_array_equal(found.numpy(), wanted.numpy())
    # Once for each way to call it, each time where a result is an argument, and as it is.
    assert len(CALLS) == 4 + 2 + 8


def test_a_number_in_place_of_a_tensor_has_no_say_in_the_type() -> None:
    @made_once
    def total(x: Tensor, y: Tensor) -> Tensor:
        return x + y

    x, number, typed = numbers(3).cast("float16"), Tensor(2.0), Tensor(2.0, dtype="float32")
    for _ in range(2):
        assert total(x, number).dtype is dtypes.float16
        assert total(number, x).dtype is dtypes.float16
        assert total(x, typed).dtype is dtypes.float32


def test_setting_that_a_body_asks_for_is_part_of_what_it_is_kept_for() -> None:
    """A product inside of another method is rounded where that is asked for."""
    x, w = Tensor([[1.0 + 2.0**-12]]).realize(), Tensor([[1.0]]).realize()
    for asked, found in (("0", 1.0 + 2.0**-12), ("1", 1.0), ("0", 1.0 + 2.0**-12)):
        with Context(ALLOW_TF32=asked):
            assert x.linear(w).item() == found


def test_labels_and_positions_are_looked_at_in_each_call() -> None:
    scores = numbers(2, 3).realize()
    for _ in range(2):
        scores.cross_entropy(Tensor([0, 2]))
        for wrong in (
            scores.cross_entropy,
            scores.nll_loss,
            scores.sparse_categorical_crossentropy,
        ):
            with pytest.raises(IndexError, match="label 3 of 3 classes"):
                wrong(Tensor([0, 3]))
        with pytest.raises(IndexError):
            scores.scatter(1, Tensor([[0], [3]]), 1.0)


def test_dropout_of_attention_draws_anew() -> None:
    q = numbers(1, 4, 8).realize()
    with Tensor.train():
        one, other = [q.scaled_dot_product_attention(q, q, dropout_p=0.5).numpy() for _ in "ab"]
    assert not np.array_equal(one, other)
    whole = q.scaled_dot_product_attention(q, q).numpy()
    np.testing.assert_array_equal(
        q.scaled_dot_product_attention(q, q, dropout_p=0.5).numpy(), whole
    )


def test_a_leaf_that_was_made_once_takes_a_derivative_of_a_derivative() -> None:
    """Not yet drawn, it stands in the graph of the first derivative as the node that it is."""
    weight, x = Tensor.randn(3, 4), Tensor(np.ones((2, 3), np.float32))
    (slope,) = (x @ weight).sigmoid().sum().gradient(x)
    slope.square().sum().backward()
    assert weight.grad is not None and weight.grad.shape == (3, 4)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.roll(-4, 1),
        lambda x: x.roll(0, 0),
        lambda x: x.pad((0, 0), mode="reflect"),
        lambda x: x.cumsum(1),
        lambda x: x.cummax(1)[0],
        lambda x: x.reshape(1, 1, 1, 1).max_pool2d(1),
        lambda x: x.reshape(1, 1, 1, 1).avg_pool2d(1),
        lambda x: x.reshape(1, 1, 1, 1).interpolate((1, 1)),
        lambda x: x.cat(dim=0),
        lambda x: x.tril(),
        lambda x: x.sort()[0],
        lambda x: x.gather(1, Tensor([[0]])),
        lambda x: Tensor.einsum("ij->ji", x),
    ],
)
def test_view_of_an_argument_is_of_its_memory(function: Callable[[Tensor], Tensor]) -> None:
    """A function of one element may give what it is given: a recorded one does not write over it."""
    step = TinyJit(lambda x: (function(x),))
    given = [Tensor([[value]]).realize() for value in (1.0, 2.0, 3.0)]
    results = [step(x)[0].numpy().item() for x in given]
    assert results == [1, 2, 3] and [x.item() for x in given] == [1, 2, 3]
