"""What users write who come from elsewhere: it works, or the message says what to write instead."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from proofgrad import ShapeError, Tensor, nn
from proofgrad.nn.state import safe_save

X = Tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
ONE = Tensor(3.0)
IMAGES = Tensor.ones(1, 2, 4, 4)

MISTAKES: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "kernel 0": (lambda: IMAGES.max_pool2d(0), ShapeError, r"kernel_size \(0, 0\), stride"),
    "kernel -2": (lambda: IMAGES.avg_pool2d(-2), ShapeError, "must be 1 or more"),
    "stride 0": (lambda: IMAGES.max_pool2d(2, stride=0), ShapeError, r"stride \(0, 0\)"),
    "padding in words": (
        lambda: IMAGES.conv2d(Tensor.ones(3, 2, 3, 3), padding="same"),  # type: ignore[arg-type]
        TypeError,
        "nn.Conv2d takes 'same'",
    ),
    "one size for all": (
        lambda: IMAGES.interpolate(2),  # type: ignore[arg-type]
        TypeError,
        "a size for each of the last axes, not 2",
    ),
    "axes in the wrong order": (
        lambda: X.flatten(1, 0),
        ShapeError,
        r"flatten from axis 1 to 0 of \(2, 3\)",
    ),
    "negative repeat": (lambda: X.repeat(-1, 1), ShapeError, r"repeat \(-1, 1\): each count"),
    "repeats as a Tensor": (
        lambda: X.repeat_interleave(Tensor([1, 2, 0]), dim=1),  # type: ignore[arg-type]
        ShapeError,
        "takes a number of 0 or more",
    ),
    "negative interleave": (lambda: X.repeat_interleave(-1), ShapeError, "0 or more, not -1"),
    "size of no axis": (lambda: X.size(5), IndexError, r"no axis 5 in the 2 axes of \(2, 3\)"),
    "cat of nothing": (lambda: Tensor.cat([]), TypeError, r"cat takes Tensors, one or more"),  # type: ignore[arg-type]
    "stack of numbers": (lambda: Tensor.stack([1, 2]), TypeError, r"stack takes Tensors"),  # type: ignore[arg-type]
    "seed of text": (lambda: Tensor.manual_seed("a"), TypeError, "a seed is an integer"),  # type: ignore[arg-type]
    "no inputs": (lambda: nn.Linear(0, 2), ShapeError, "Linear from 0 to 2 features"),
    "triangle of a number": (lambda: ONE.tril(), ShapeError, r"need 2 axes or more, not \(\)"),
    "one cut for all axes": (
        lambda: X.shrink((0, 1)),  # type: ignore[arg-type]
        TypeError,
        r"\(begin, end\) or None for each axis of \(2, 3\), not \(0, 1\)",
    ),
    "sizes of chunks": (
        lambda: X.chunk([1, 1]),  # type: ignore[arg-type]
        TypeError,
        r"how many parts to make, not \[1, 1\]; see split",
    ),
    "a list to compute": (lambda: X.realize([X]), TypeError, r"not .*list.*: realize\(\*list\)"),  # type: ignore[arg-type]
    "a list computed": (lambda: Tensor.realize([X]), TypeError, r"realize\(\*list\)"),  # type: ignore[arg-type]
    "scores of no class": (
        lambda: ONE.sparse_categorical_crossentropy(Tensor(0)),
        ShapeError,
        "an axis of classes",
    ),
    "a size for positions": (
        lambda: IMAGES.max_unpool2d(2),  # type: ignore[arg-type]
        ShapeError,
        r"with positions \(\)",
    ),
    "a length with a point": (
        lambda: X.rfft(2.5),
        TypeError,
        "a whole number of numbers, not of 2.5",
    ),  # type: ignore[arg-type]
    **{
        f"axis of one element: {name}": (
            call,
            ShapeError,
            "no axis -?[01] in 0 axes; it is a single",
        )
        for name, call in {
            "chunk": lambda: ONE.chunk(2),
            "gather": lambda: ONE.gather(0, Tensor(0)),
            "roll": lambda: ONE.roll(1, 0),
            "scatter": lambda: ONE.scatter(0, Tensor(0), ONE),
            "split": lambda: ONE.split(1, dim=-1),
            "unflatten": lambda: ONE.unflatten(0, (1, 1)),
            "unfold": lambda: ONE.unfold(0, 1, 1),
        }.items()
    },
    "axis of none": (lambda: ONE.sort(1), ShapeError, "no axis 1 in 0 axes"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistake_is_explained(name: str) -> None:
    call, kind, message = MISTAKES[name]
    with pytest.raises(kind, match=message):
        call()


def test_what_is_saved_must_be_tensors(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="takes Tensors, and 'a' is 1"):
        safe_save({"a": 1}, tmp_path / "file")  # type: ignore[dict-item]


def test_lists_of_tensors_are_joined_as_in_torch() -> None:
    x, y = Tensor([[1, 2]]), Tensor([[3, 4]])
    assert Tensor.cat([x, y]).tolist() == [[1, 2], [3, 4]]  # type: ignore[arg-type]
    assert Tensor.cat((x, y), dim=-1).tolist() == [[1, 2, 3, 4]]  # type: ignore[arg-type]
    assert Tensor.stack([x, y], dim=1).tolist() == [[[1, 2], [3, 4]]]  # type: ignore[arg-type]


@pytest.mark.parametrize("join", [Tensor.cat, Tensor.stack])
@pytest.mark.parametrize(("other", "named"), [(X, "Tensor"), (1, "1"), ([X], "list")])
def test_what_comes_behind_a_list_of_tensors_is_refused(join: Any, other: Any, named: str) -> None:
    with pytest.raises(TypeError, match=f"nothing more but dim=, not .*{named}"):
        join([X, X], other)


def test_one_element_has_the_axes_of_a_line() -> None:
    values, positions = ONE.sort()
    assert (values.item(), positions.item(), ONE.argsort(descending=True).item()) == (3.0, 0, 0)
    assert ONE.softmax(-1).item() == 1.0 and ONE.cumsum(-1).item() == 3.0 == ONE.max(-1).item()
    assert ONE.argmax(-1).item() == 0 and ONE.flip(-1).item() == 3.0
    assert ONE.squeeze(-1).shape == () and ONE.unsqueeze(-1).shape == (1,)


def test_length_of_a_transform_may_be_a_number_of_numpy() -> None:
    assert X.rfft(np.int64(2)).tolist() == X.rfft(2).tolist()


def test_signs_and_sizes_by_the_operators_of_python() -> None:
    assert (+X).tolist() == X.tolist() and abs(-X).tolist() == X.tolist()
    assert abs(Tensor([-3, 3])).tolist() == [3, 3] and np.abs(np.float32(-1)) == abs(-1)
