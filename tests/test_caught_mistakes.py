"""Mistakes raise what users of numpy, torch and tinygrad catch: one row a mistake, with the builtins that they name."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from proofgrad import Tensor, dtypes, nn
from proofgrad.nn.state import load_state_dict

Wrong = Callable[[], Any]
BOTH = (ValueError, RuntimeError)


def _ones(*shape: int) -> Tensor:
    return Tensor.ones(*shape).contiguous()


MISTAKES: dict[str, tuple[Wrong, tuple[type[Exception], ...]]] = {
    "reshape": (lambda: _ones(2, 3).reshape(4, 2), BOTH),
    "reshape with two rests": (lambda: _ones(2, 3).reshape(-1, -1), BOTH),
    "view": (lambda: _ones(2, 3).view(5, -1), BOTH),
    "permute twice": (lambda: _ones(2, 3).permute(0, 0), BOTH),
    "permute too few": (lambda: _ones(2, 3).permute(0), BOTH),
    "permute beyond": (lambda: _ones(2, 3).permute(0, 2), (IndexError, *BOTH)),
    "transpose beyond": (lambda: _ones(2, 3).transpose(0, 3), (IndexError,)),
    "expand": (lambda: _ones(2, 3).expand(4, 3), BOTH),
    "expand to fewer axes": (lambda: _ones(2, 3).expand(3), BOTH),
    "cat": (lambda: _ones(2, 3).cat(_ones(3, 4)), BOTH),
    "stack": (lambda: _ones(2).stack(_ones(3)), BOTH),
    "matmul": (lambda: _ones(2, 3) @ _ones(2, 3), BOTH),
    "matmul of a number": (lambda: Tensor(1.0) @ _ones(2), BOTH),
    "broadcast": (lambda: _ones(2, 3) + _ones(4), (*BOTH, IndexError)),
    "plus a text": (lambda: _ones(2) + "a", (TypeError,)),  # type: ignore[operator]
    "plus nothing": (lambda: _ones(2) + None, (TypeError,)),  # type: ignore[operator]
    "sum beyond": (lambda: _ones(2).sum(3), (IndexError, ValueError)),
    "sum twice": (lambda: _ones(2, 2).sum((0, 0)), BOTH),
    "softmax beyond": (lambda: _ones(2).softmax(3), (IndexError,)),
    "argmax beyond": (lambda: _ones(2).argmax(3), (IndexError,)),
    "cumsum beyond": (lambda: _ones(2).cumsum(3), (IndexError,)),
    "max of nothing": (lambda: Tensor([]).max(), BOTH),
    "index beyond": (lambda: _ones(2)[5], (IndexError,)),
    "too many indices": (lambda: _ones(2)[0, 0], (IndexError,)),
    "a list beyond": (lambda: _ones(2)[[5]], (IndexError,)),
    "a float as index": (lambda: _ones(2)[1.5], (IndexError, TypeError)),
    "a text as index": (lambda: _ones(2)["a"], (IndexError, TypeError)),
    "floats as index": (lambda: _ones(2)[Tensor([0.5])], (IndexError, TypeError)),
    "a step of 0": (lambda: _ones(4)[::0], (ValueError, IndexError)),
    "a slice of floats": (lambda: _ones(4)[0.5:], (TypeError, IndexError)),  # type: ignore[misc]
    "two ellipses": (lambda: _ones(2, 2, 2)[..., 0, ...], (IndexError,)),
    "a mask of another shape": (lambda: _ones(2)[Tensor([True, False, True])], (IndexError, ValueError)),
    "indices that differ": (lambda: _ones(4, 4)[Tensor([0, 1, 2]), Tensor([0, 1])], (IndexError, ValueError)),
    "write of another shape": (lambda: _ones(4).__setitem__(slice(0, 2), _ones(3)), BOTH),
    "write beyond": (lambda: _ones(4).__setitem__(7, 1.0), (IndexError,)),
    "write of a text": (lambda: _ones(4).__setitem__(0, "a"), (TypeError, RuntimeError)),
    "item of many": (lambda: _ones(2).item(), BOTH),
    "truth of many": (lambda: bool(_ones(2)), (*BOTH, TypeError)),
    "float of many": (lambda: float(_ones(2)), (*BOTH, TypeError)),
    "int of many": (lambda: int(_ones(2)), (*BOTH, TypeError)),
    "length of a number": (lambda: len(Tensor(1.0)), (TypeError,)),
    "elements of a number": (lambda: list(Tensor(1.0)), (TypeError,)),
    "ragged": (lambda: Tensor([[1, 2], [3]]), (ValueError,)),
    "a text": (lambda: Tensor("abc"), (TypeError, RuntimeError)),
    "an object": (lambda: Tensor(object()), (TypeError, RuntimeError)),
    "texts of numpy": (lambda: Tensor(np.array(["a"])), (TypeError,)),
    "a type that is none": (lambda: Tensor([1], dtype="flaot"), (TypeError, ValueError)),
    "cast to none": (lambda: _ones(2).cast("nope"), (TypeError, RuntimeError)),
    "a number that does not fit": (lambda: Tensor([300], dtype="int8"), (OverflowError,)),
    "a device that is none": (lambda: Tensor([1], device="NOPE"), BOTH),
    "backward of many": (lambda: _ones(2, 2).backward(), BOTH),
    "gradient of ints": (lambda: Tensor([1]).sum().gradient(Tensor([1])), (RuntimeError, TypeError)),
    "backward of ints": (lambda: Tensor([1, 2]).sum().backward(), (RuntimeError,)),
    "channels": (lambda: _ones(1, 3, 5, 5).conv2d(_ones(2, 4, 3, 3)), BOTH),
    "a kernel beyond": (lambda: _ones(1, 1, 2, 2).conv2d(_ones(1, 1, 3, 3)), BOTH),
    "groups": (lambda: _ones(1, 3, 5, 5).conv2d(_ones(2, 3, 3, 3), groups=2), BOTH),
    "a pool beyond": (lambda: _ones(1, 1, 2, 2).max_pool2d(5), BOTH),
    "linear": (lambda: nn.Linear(3, 2)(_ones(2, 4)), BOTH),
    "embedding of floats": (lambda: nn.Embedding(3, 2)(_ones(2)), (RuntimeError, TypeError)),
    "layernorm": (lambda: nn.LayerNorm(3)(_ones(2, 4)), BOTH),
    "batchnorm": (lambda: nn.BatchNorm(3)(_ones(2, 4, 2, 2)), BOTH),
    "groupnorm": (lambda: nn.GroupNorm(2, 3), (ValueError,)),
    "gather of fewer axes": (lambda: _ones(2, 2).gather(0, Tensor([0])), BOTH),
    "gather by floats": (lambda: _ones(2).gather(0, _ones(2)), (RuntimeError, TypeError)),
    "scatter": (lambda: _ones(2, 2).scatter(0, Tensor([0]), _ones(2)), BOTH),
    "scatter in no way": (lambda: _ones(2).scatter(0, Tensor([0]), 1.0, reduce="nope"), BOTH),
    "topk beyond": (lambda: _ones(2).topk(5), BOTH),
    "sort beyond": (lambda: _ones(2).sort(2), (IndexError,)),
    "split": (lambda: _ones(4).split([1, 1]), BOTH),
    "split by -1": (lambda: _ones(4).split(-1), BOTH),
    "no chunks": (lambda: _ones(4).chunk(0), BOTH),
    "squeeze beyond": (lambda: _ones(2).squeeze(3), (IndexError,)),
    "unsqueeze beyond": (lambda: _ones(2).unsqueeze(5), (IndexError,)),
    "flatten backwards": (lambda: _ones(2, 2).flatten(1, 0), BOTH),
    "unflatten": (lambda: _ones(4).unflatten(0, (3, 2)), BOTH),
    "repeat too few": (lambda: _ones(2, 2).repeat(2), BOTH),
    "repeat -1 times": (lambda: _ones(2).repeat(-1), BOTH),
    "flip twice": (lambda: _ones(2, 2).flip((0, 0)), BOTH),
    "roll beyond": (lambda: _ones(2).roll(1, 3), (IndexError,)),
    "pad of three": (lambda: _ones(2).pad((1, 2, 3)), BOTH),
    "reflection beyond": (lambda: _ones(1, 2).pad((5, 5), mode="reflect"), BOTH),
    "a mode of pad that is none": (lambda: _ones(1, 2).pad((1, 1), mode="nope"), (NotImplementedError, ValueError)),
    "a mode of interpolate": (lambda: _ones(1, 1, 2, 2).interpolate((3, 3), mode="nope"), (NotImplementedError, ValueError)),
    "einsum sizes": (lambda: Tensor.einsum("ij,jk->ik", _ones(2, 3), _ones(2, 3)), BOTH),
    "einsum operands": (lambda: Tensor.einsum("ij->i", _ones(2, 3), _ones(2)), BOTH),
    "einsum letters": (lambda: Tensor.einsum("ij->k", _ones(2, 3)), BOTH),
    "einsum axes": (lambda: Tensor.einsum("ijk->i", _ones(2, 3)), BOTH),
    "labels too many": (lambda: _ones(2, 3).cross_entropy(Tensor([0, 1, 2])), BOTH),
    "a label beyond": (lambda: _ones(2, 3).cross_entropy(Tensor([0, 7])), (IndexError,)),
    "a reduction that is none": (lambda: _ones(2, 3).cross_entropy(Tensor([0, 1]), reduction="nope"), (ValueError,)),
    "one_hot of floats": (lambda: _ones(2).one_hot(3), (RuntimeError, TypeError)),
    "zeros of -1": (lambda: Tensor.zeros(-1), BOTH),
    "arange in steps of 0": (lambda: Tensor.arange(0, 5, 0), BOTH),
    "eye of -1": (lambda: Tensor.eye(-1), BOTH),
    "full of a text": (lambda: Tensor.full((2,), "a"), (TypeError, RuntimeError)),  # type: ignore[arg-type]
    "linspace of -1": (lambda: Tensor.linspace(0, 1, -1), BOTH),
    "randint of nothing": (lambda: Tensor.randint(3, low=5, high=2), BOTH),
    "multinomial of none": (lambda: _ones(2).multinomial(0), BOTH),
    "multinomial of many": (lambda: _ones(2).multinomial(5), BOTH),
    "shift of floats": (lambda: _ones(2) << 1, (RuntimeError, TypeError)),
    "and of floats": (lambda: _ones(2) & _ones(2), (RuntimeError, TypeError)),
    "not of floats": (lambda: ~_ones(2), (RuntimeError, TypeError)),
    "ints to -1": (lambda: Tensor([2]) ** -1, BOTH),
    "assign of another shape": (lambda: _ones(2).assign(_ones(3)), BOTH),
    "assign of floats to ints": (lambda: Tensor([1, 2]).assign(Tensor([1.5, 2.5])), (TypeError, RuntimeError)),
    "bits of three": (lambda: _ones(3).bitcast(dtypes.float64), (RuntimeError, TypeError)),
    "clamp to nothing": (lambda: _ones(2).clamp(), BOTH),
    "where of floats": (lambda: _ones(2).where(1, 2), (RuntimeError, TypeError)),
    "select by floats": (lambda: _ones(2).masked_select(_ones(2)), (RuntimeError, TypeError)),
    "attention": (lambda: _ones(1, 2, 3).scaled_dot_product_attention(_ones(1, 2, 4), _ones(1, 2, 4)), BOTH),
    "meshgrid": (lambda: _ones(2, 2).meshgrid(_ones(2)), BOTH),
    "dropout of 2": (lambda: _ones(2).dropout(2.0), (ValueError,)),
    "factors of a line": (lambda: _ones(2).qr(), BOTH),
    "no parameters": (lambda: nn.optim.SGD([]), (ValueError,)),
    "a state that lacks": (lambda: load_state_dict(nn.Linear(2, 2), {}, verbose=False), (KeyError, RuntimeError)),
    "a state of another shape": (
        lambda: load_state_dict(nn.Linear(2, 2), {"weight": _ones(3, 3), "bias": _ones(2)}, verbose=False), BOTH,
    ),
    "no such method": (lambda: _ones(2).nope, (AttributeError,)),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_caught_by_each_name_that_users_know(name: str) -> None:
    wrong, names = MISTAKES[name]
    with pytest.raises(names[0]) as raised:
        wrong()
    assert all(isinstance(raised.value, caught) for caught in names)
    assert len(str(raised.value)) > 12


def test_errors_survive_pickling() -> None:
    with pytest.raises(ValueError) as raised:
        _ones(2, 3).reshape(5)
    again = pickle.loads(pickle.dumps(raised.value))
    assert type(again) is type(raised.value) and str(again) == str(raised.value)
