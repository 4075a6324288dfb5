"""What methods may be given: numbers of numpy as Python's, arrays, lists and numbers where a Tensor is meant; the rest is named."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from proofgrad import Tensor, nn

X = Tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
IMAGES = Tensor.ones(1, 2, 6, 6)
LABELS = np.array([0, 2])
BYTES = Tensor([0, 200, 255], dtype="uint8")


# -- numbers of numpy ---------------------------------------------------------------------------

SIZES_AND_AXES: dict[str, Callable[[Any], Tensor]] = {
    "reshape": lambda k: X.reshape(k(3), k(-1)),
    "view": lambda k: X.view((k(3), k(2))),
    "zeros": lambda k: Tensor.zeros(k(2), 3),
    "full": lambda k: Tensor.full(k(2), k(7)),
    "rand": lambda k: Tensor.rand(k(2), k(3)),
    "randint": lambda k: Tensor.randint(k(2), low=k(0), high=k(5)),
    "eye": lambda k: Tensor.eye(k(3)),
    "arange": lambda k: Tensor.arange(k(0), k(6), k(2)),
    "linspace": lambda k: Tensor.linspace(k(0), k(1), k(5)),
    "sum": lambda k: X.sum(k(1)),
    "sum of axes": lambda k: X.sum((k(0), k(-1))),
    "softmax": lambda k: X.softmax(k(0)),
    "argmax": lambda k: X.argmax(k(1)),
    "std": lambda k: X.std(k(1), correction=k(0)),
    "permute": lambda k: X.permute(k(1), k(0)),
    "expand": lambda k: X.expand(k(4), k(2), k(3)),
    "repeat": lambda k: X.repeat(k(2), k(1)),
    "repeat_interleave": lambda k: X.repeat_interleave(k(2), k(1)),
    "split": lambda k: X.split(k(2), k(1))[0],
    "roll": lambda k: X.roll(k(1), k(0)),
    "pad": lambda k: X.pad((k(1), k(2))),
    "shrink": lambda k: X.shrink(((k(0), k(1)), None)),
    "cat": lambda k: X.cat(X, dim=k(1)),
    "topk": lambda k: X.topk(k(2))[0],
    "one_hot": lambda k: Tensor([1, 2]).one_hot(k(4)),
    "unfold": lambda k: X.unfold(k(1), k(2), k(1)),
    "index": lambda k: X[[k(0), k(1)], k(2)],
    "conv2d": lambda k: IMAGES.conv2d(Tensor.ones(2, 1, 3, 3), None, k(2), k(1), k(1), k(1)),
    "pool": lambda k: IMAGES.max_pool2d(k(2)),
    "interpolate": lambda k: IMAGES.interpolate((k(3), k(4))),
    "Linear": lambda k: nn.Linear(k(3), k(4))(X),
    "Embedding": lambda k: nn.Embedding(k(3), k(4))(Tensor([1])),
    "Conv2d": lambda k: nn.Conv2d(k(2), k(3), k(3), padding=k(1))(IMAGES),
    "LayerNorm": lambda k: nn.LayerNorm(k(3))(X),
    "AdaptiveAvgPool2d": lambda k: nn.AdaptiveAvgPool2d(k(2))(IMAGES),
}


@pytest.mark.parametrize("name", SIZES_AND_AXES)
def test_sizes_and_axes_of_numpy_are_those_of_python(name: str) -> None:
    ours, numpys = SIZES_AND_AXES[name](int), SIZES_AND_AXES[name](np.int64)
    assert ours.shape == numpys.shape and ours.dtype is numpys.dtype
    assert all(type(size) is int for size in numpys.shape)
    assert SIZES_AND_AXES[name](np.int32).shape == ours.shape


def test_floats_of_numpy_are_numbers() -> None:
    assert Tensor.arange(0, 1, np.float32(0.25)).tolist() == [0.0, 0.25, 0.5, 0.75]  # type: ignore[arg-type]
    assert X.scatter(0, Tensor([[1]]), np.float32(9)).tolist()[1] == [9.0, 5.0, 6.0]  # type: ignore[arg-type]
    with pytest.raises(
        TypeError, match=r"axis is an int, several of them, or None for all, not 1.0"
    ):
        X.sum(1.0)  # type: ignore[arg-type]


# -- what stands for a Tensor -------------------------------------------------------------------

ARRAY = np.array([[0.5, 0.0, 1.0], [1.0, 0.25, 0.0]], np.float32)
MASK = ARRAY > 0.3
WITH_A_TENSOR: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "cross_entropy": (X.cross_entropy, LABELS),
    "cross_entropy with a distribution": (X.cross_entropy, ARRAY),
    "sparse_categorical_crossentropy": (X.sparse_categorical_crossentropy, LABELS),
    "nll_loss": (X.nll_loss, LABELS),
    "weight of nll_loss": (lambda w: X.nll_loss(Tensor(LABELS), weight=w), ARRAY[0] + 1),
    "binary_crossentropy": (X.sigmoid().binary_crossentropy, ARRAY),
    "binary_crossentropy_logits": (X.binary_crossentropy_logits, ARRAY),
    "pos_weight": (lambda w: X.binary_crossentropy_logits(Tensor(ARRAY), pos_weight=w), ARRAY[0]),
    "mse_loss": (X.mse_loss, ARRAY),
    "l1_loss": (X.l1_loss, ARRAY),
    "huber_loss": (X.huber_loss, ARRAY),
    "smooth_l1_loss": (X.smooth_l1_loss, ARRAY),
    "kl_div": (X.kl_div, ARRAY),
    "linear": (X.linear, ARRAY.T),
    "masked_fill": (lambda mask: X.masked_fill(mask, 0.0), MASK),
    "gather": (lambda index: X.gather(1, index), np.array([[0, 2], [1, 1]])),
    "scatter": (lambda index: X.scatter(1, index, 7.0), np.array([[0], [1]])),
    "src of scatter": (lambda src: X.scatter(1, Tensor([[0], [1]]), src), ARRAY[:, :1]),
    "scatter_reduce": (lambda i: X.scatter_reduce(1, i, X, "sum"), np.array([[0], [1]])),
    "conv2d": (IMAGES.conv2d, np.ones((3, 2, 2, 2), np.float32)),
    "conv_transpose2d": (IMAGES.conv_transpose2d, np.ones((2, 3, 2, 2), np.float32)),
    "attention": (lambda k: X.scaled_dot_product_attention(k, X), ARRAY),
    "attention's mask": (lambda m: X.scaled_dot_product_attention(X, X, attn_mask=m), MASK[:, :2]),
    "batchnorm": (lambda m: IMAGES.batchnorm(None, None, m, Tensor.ones(2)), ARRAY[0, :2]),
    "solve": (Tensor([[2.0, 0.0], [1.0, 4.0]]).solve, ARRAY[0, :2]),
}  # fmt: skip


@pytest.mark.parametrize("name", WITH_A_TENSOR)
def test_arrays_and_lists_stand_for_tensors(name: str) -> None:
    function, array = WITH_A_TENSOR[name]
    wanted = function(Tensor(array)).tolist()
    assert function(array).tolist() == wanted and function(array.tolist()).tolist() == wanted


@pytest.mark.parametrize("name", WITH_A_TENSOR)
def test_what_is_no_tensor_is_named(name: str) -> None:
    function, _ = WITH_A_TENSOR[name]
    wrong = [{}, "abc"] if "eight" in name or "mask" in name else [None, {}, "abc"]
    for value in wrong:
        with pytest.raises(TypeError, match=r"is a Tensor, an array, a list or a number, not "):
            function(value)


def test_gradients_and_grids_say_what_they_take() -> None:
    x = Tensor([1.0, 2.0], requires_grad=True)
    with pytest.raises(TypeError, match=r"with respect to Tensors, not None"):
        x.sum().gradient(None)  # type: ignore[arg-type]
    (x * x).backward(np.array([1.0, 10.0], np.float32))  # type: ignore[arg-type]
    assert x.grad is not None and x.grad.tolist() == [2.0, 40.0]
    with pytest.raises(TypeError, match=r"meshgrid takes Tensors, not None"):
        x.meshgrid(None)  # type: ignore[arg-type]


def test_a_number_is_a_target_for_all_elements_and_warns_of_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for function in (X.mse_loss, X.l1_loss, X.binary_crossentropy_logits):
            assert function(1.0).item() == function(Tensor.ones(2, 3)).item()  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "call",
    [
        lambda: Tensor([1, 2], requires_grad=True),
        lambda: Tensor.arange(3, requires_grad=True),
        lambda: Tensor([True]).requires_grad_(),
        lambda: Tensor.ones(2, dtype="int32", requires_grad=True),
    ],
)
def test_a_gradient_of_integers_is_refused_where_it_is_asked_for(call: Callable[[], Any]) -> None:
    """It was allowed, and `backward` found nothing."""
    with pytest.raises(RuntimeError, match=r"requires_grad=True is for floats, and this is dtypes"):
        call()


# -- comparisons with what a type does not hold -------------------------------------------------


@pytest.mark.parametrize("kind", ["uint8", "int8", "uint64", "int64"])
@pytest.mark.parametrize("number", [-1, 300, 2**70, -(2**70), 2**63, 127])
def test_comparisons_take_any_whole_number_as_numpy_does(kind: str, number: int) -> None:
    array = np.array([0, 1, 127], kind)
    x = Tensor(array)
    assert (x < number).tolist() == (array < number).tolist()
    assert (x <= number).tolist() == (array <= number).tolist()
    assert (x > number).tolist() == (array > number).tolist()
    assert (x >= number).tolist() == (array >= number).tolist()
    assert (x == number).tolist() == (array == number).tolist()
    assert (x != number).tolist() == (array != number).tolist()
    assert (number < x).tolist() == (number < array).tolist()


def test_arithmetic_with_what_does_not_fit_is_refused_still() -> None:
    with pytest.raises(OverflowError, match="-1 does not fit uint8"):
        BYTES + -1
    assert (BYTES != -1).where(BYTES, 0).tolist() == [0, 200, 255]


# -- axes of what is empty, or one element ------------------------------------------------------


@pytest.mark.parametrize(
    "function", [Tensor.softmax, Tensor.log_softmax, Tensor.softmin, Tensor.sum]
)
@pytest.mark.parametrize("shape", [(0, 3), (2, 0), ()])
def test_axes_are_checked_where_nothing_is_computed(function: Any, shape: tuple[int, ...]) -> None:
    with pytest.raises(IndexError, match="there is no axis 5"):
        function(Tensor.zeros(*shape), 5)


def test_one_element_has_no_other_axes() -> None:
    one = Tensor(3.0)
    for call in (
        lambda: one.flatten(1),
        lambda: one.layernorm(2),
        lambda: one.repeat_interleave(2, 1),
    ):
        with pytest.raises(IndexError, match="in 0 axes; it is a single element"):
            call()
    assert one.transpose(0, -1).shape == () and one.repeat_interleave(2, 0).tolist() == [3.0, 3.0]
    assert one.sum((0,)).item() == 3.0


def test_extremes_of_nothing_name_themselves_and_the_shape() -> None:
    for name in ("argmax", "argmin", "max", "min"):
        with pytest.raises(ValueError, match=rf"the {name} over no elements of \(0, 3\)"):
            getattr(Tensor.zeros(0, 3), name)()


def test_parts_of_nothing_are_as_many_as_asked_for() -> None:
    assert [part.shape for part in Tensor.zeros(0, 3).chunk(2)] == [(0, 3), (0, 3)]


# -- messages -----------------------------------------------------------------------------------

MESSAGES: dict[str, tuple[Callable[[], Any], str]] = {
    "pad": (lambda: X.pad(5), r"padding is pairs \(before, after\) or torch's flat form, not 5"),  # type: ignore[arg-type]
    "split": (lambda: X.split(None), r"sizes of split is a number or several of them, not None"),  # type: ignore[arg-type]
    "several axes": (lambda: X.sum(0, 1), r"several axes are one argument: sum\(\(0, 1\)\)"),
    "several axes of a mean": (lambda: X.mean(-1, 0), r"is keepdim, True or False"),
    "roll": (lambda: X.roll(None), r"shifts of roll is a number or several of them"),  # type: ignore[arg-type]
    "pool": (lambda: IMAGES.max_pool2d(None), r"kernel_size is a number or several of them, not None"),  # type: ignore[arg-type]
    "sizes in lists": (lambda: X.expand(2, [3]), r"sizes and axes are numbers, not \[3\]"),
    "stride": (lambda: IMAGES.conv_transpose2d(Tensor.ones(2, 1, 2, 2), stride=0), r"stride \(0, 0\) and dilation"),
    "dropout": (lambda: X.dropout("a"), r"dropout takes a probability, a number, not 'a' \(str\)"),  # type: ignore[arg-type]
    "arange": (lambda: Tensor.arange(None), r"arange takes finite numbers, not None"),  # type: ignore[arg-type]
    "arange to infinity": (lambda: Tensor.arange(float("inf")), r"arange takes finite numbers, not inf"),
    "full": (lambda: Tensor.full((2,), np.ones(2)), r"elements are numbers, not array"),  # type: ignore[arg-type]
}  # fmt: skip


@pytest.mark.parametrize("name", MESSAGES)
def test_message_names_argument_and_value(name: str) -> None:
    call, message = MESSAGES[name]
    with pytest.raises((TypeError, ValueError), match=message):
        call()


# -- torch's arguments of layers ----------------------------------------------------------------


def test_inplace_is_taken_and_changes_nothing() -> None:
    for layer in (nn.ReLU, nn.ReLU6, nn.SELU, nn.SiLU, nn.Mish, nn.Hardsigmoid, nn.Hardswish):
        assert layer(inplace=True)(X).tolist() == layer()(X).tolist()
        assert repr(layer(True)) == f"{layer.__name__}()"
    for other in (
        nn.LeakyReLU(0.2, True),
        nn.ELU(1.0, True),
        nn.CELU(1.0, True),
        nn.Dropout(0.5, True),
    ):
        assert other(X).shape == X.shape


def test_max_pools_take_torchs_arguments_in_torchs_order() -> None:
    """The fourth was `ceil_mode`, which 2 switched on."""
    rows = Tensor.arange(25).reshape(1, 1, 5, 5).float()
    assert nn.MaxPool2d(2, 1, 0, 2)(rows).shape == (1, 1, 3, 3)
    values, positions = nn.MaxPool2d(2, return_indices=True)(rows)
    assert values.tolist() == [[[[6.0, 8.0], [16.0, 18.0]]]]
    assert positions.tolist() == [[[[6, 8], [16, 18]]]]


LAYERS: dict[str, tuple[Callable[[], Any], str]] = {
    "Linear": (lambda: nn.Linear(4, 2)(X), r"Linear takes \(.., 4\), not a Tensor of \(2, 3\)"),
    "momentum in the place of affine": (
        lambda: nn.BatchNorm2d(4, 1e-5, 0.1),  # type: ignore[arg-type]
        r"not 0.1 and True; torch's third argument, the momentum",
    ),
    "batch_first": (lambda: nn.MultiheadAttention(4, 2, batch_first=False), r"takes \(n, t, embed_dim\)"),
    "unbiased": (lambda: X.std(unbiased=False), r"std\(\) takes correction=, not unbiased="),  # type: ignore[call-arg]
    "einsum": (lambda: Tensor.einsum(X, X), r"einsum takes a formula first"),  # type: ignore[arg-type]
}  # fmt: skip


@pytest.mark.parametrize("name", LAYERS)
def test_layers_say_what_differs_from_torch(name: str) -> None:
    call, message = LAYERS[name]
    with pytest.raises((TypeError, ValueError), match=message):
        call()


WITHOUT: dict[str, Callable[[], Any]] = {
    "full": lambda: Tensor.full((2, 2)),  # type: ignore[call-arg]
    "topk": lambda: X.topk(),  # type: ignore[call-arg]
    "pad": lambda: X.pad(),  # type: ignore[call-arg]
    "conv2d": lambda: X.conv2d(),  # type: ignore[call-arg]
    "cat": lambda: Tensor.cat(),  # type: ignore[call-arg]
    "backward": lambda: X.backward(None, None),  # type: ignore[call-arg]
}  # fmt: skip


@pytest.mark.parametrize("name", WITHOUT)
def test_python_names_the_method_as_users_call_it(name: str) -> None:
    """It named the class of its subject, as `Factories.full()`."""
    with pytest.raises(TypeError, match=rf"^Tensor\.{name}\(\) "):
        WITHOUT[name]()


def test_methods_are_pickled_under_the_name_of_tensor() -> None:
    for method in (Tensor.relu, Tensor.cat, Tensor.sort, Tensor.zeros, Tensor.__add__):
        assert pickle.loads(pickle.dumps(method)) == method
        assert method.__module__ == Tensor.__module__
