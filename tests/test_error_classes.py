"""Each mistake raises what users of torch catch for it: the same mistakes beside torch, and the builtins of both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from proofgrad import Tensor, nn
from proofgrad.nn.optim import SGD, Adam
from proofgrad.nn.state import load_state_dict

torch = pytest.importorskip("torch")
F = torch.nn.functional
BUILTINS = (ValueError, RuntimeError, IndexError, TypeError, AttributeError, FileNotFoundError)
Mistake = Callable[[], Any]
o, t, i = Tensor.ones, torch.ones, torch.tensor


def _learn() -> Any:
    return torch.ones(1, requires_grad=True)


MISTAKES: dict[str, tuple[Mistake, Mistake]] = {
    "sizes of a sum": (lambda: o(2) + o(3), lambda: t(2) + t(3)),
    "sizes of a product": (lambda: o(2, 3) @ o(2, 3), lambda: t(2, 3) @ t(2, 3)),
    "product with a number": (lambda: o() @ o(3), lambda: t(()) @ t(3)),
    "reshape": (lambda: o(2, 3).reshape(4), lambda: t(2, 3).reshape(4)),
    "two rests": (lambda: o(2, 3).reshape(-1, -1), lambda: t(2, 3).reshape(-1, -1)),
    "a negative size": (lambda: o(2, 3).reshape(-2, 3), lambda: t(2, 3).reshape(-2, 3)),
    "a text as a size": (lambda: o(2, 3).reshape("a"), lambda: t(2, 3).reshape("a")),
    "a float as a size": (lambda: o(2, 3).reshape(6.0), lambda: t(2, 3).reshape(6.0)),
    "permute of few axes": (lambda: o(2, 3).permute(0), lambda: t(2, 3).permute(0)),
    "permute of one twice": (lambda: o(2, 3).permute(0, 0), lambda: t(2, 3).permute(0, 0)),
    "permute out of range": (lambda: o(2, 3).permute(0, 2), lambda: t(2, 3).permute(0, 2)),
    "transpose out of range": (lambda: o(2).transpose(0, 2), lambda: t(2).transpose(0, 2)),
    "expand": (lambda: o(2, 3).expand(2, 4), lambda: t(2, 3).expand(2, 4)),
    "cat of other sizes": (lambda: o(2, 3).cat(o(3, 2)), lambda: torch.cat([t(2, 3), t(3, 2)])),
    "cat out of range": (lambda: o(2).cat(o(2), dim=2), lambda: torch.cat([t(2), t(2)], dim=2)),
    "cat of numbers": (lambda: o().cat(o()), lambda: torch.cat([t(()), t(())])),
    "cat of nothing": (lambda: Tensor.cat([]), lambda: torch.cat([])),  # type: ignore[arg-type]
    "stack of other sizes": (lambda: o(2).stack(o(3)), lambda: torch.stack([t(2), t(3)])),
    "split": (lambda: o(5).split([2, 2]), lambda: t(5).split([2, 2])),
    "no chunks": (lambda: o(5).chunk(0), lambda: t(5).chunk(0)),
    "squeeze out of range": (lambda: o(2, 1).squeeze(2), lambda: t(2, 1).squeeze(2)),
    "unsqueeze out of range": (lambda: o(2).unsqueeze(3), lambda: t(2).unsqueeze(3)),
    "unflatten": (lambda: o(6).unflatten(0, (4, 2)), lambda: t(6).unflatten(0, (4, 2))),
    "roll": (lambda: o(2, 2).roll((1, 2), (0,)), lambda: t(2, 2).roll((1, 2), (0,))),
    "repeat": (lambda: o(2).repeat(-1), lambda: t(2).repeat(-1)),
    "unfold": (lambda: o(3).unfold(0, 4, 1), lambda: t(3).unfold(0, 4, 1)),
    "tril of a line": (lambda: o(2).tril(), lambda: t(2).tril()),
    "sum out of range": (lambda: o(2).sum(1), lambda: t(2).sum(1)),
    "sum over one twice": (lambda: o(2, 2).sum((0, 0)), lambda: t(2, 2).sum((0, 0))),
    "max of nothing": (lambda: o(0).max(), lambda: t(0).max()),
    "argmax of nothing": (lambda: o(0).argmax(), lambda: t(0).argmax()),
    "softmax out of range": (lambda: o(2).softmax(1), lambda: t(2).softmax(1)),
    "topk of more": (lambda: o(2).topk(3), lambda: t(2).topk(3)),
    "item of two": (lambda: o(2).item(), lambda: t(2).item()),
    "truth of two": (lambda: bool(o(2)), lambda: bool(t(2))),
    "length of a number": (lambda: len(o()), lambda: len(t(()))),
    "an index out of range": (lambda: o(2)[2], lambda: t(2)[2]),
    "too many indices": (lambda: o(2)[0, 0], lambda: t(2)[0, 0]),
    "an index of a number": (lambda: o()[0], lambda: t(())[0]),
    "a float as an index": (lambda: o(2)[1.5], lambda: t(2)[1.5]),
    "a text as an index": (lambda: o(2)["a"], lambda: t(2)["a"]),
    "a list out of range": (lambda: o(2)[[5]], lambda: t(2)[[5]]),
    "floats as indices": (lambda: o(2)[Tensor([1.0])], lambda: t(2)[i([1.0])]),
    "a mask of another size": (lambda: o(2)[Tensor([True])], lambda: t(2)[i([True])]),
    "indices of other sizes": (
        lambda: o(3, 3)[Tensor([0, 1]), Tensor([0, 1, 2])],
        lambda: t(3, 3)[i([0, 1]), i([0, 1, 2])],
    ),
    "a step of 0": (lambda: o(3)[::0], lambda: t(3)[::0]),
    "a write of another size": (
        lambda: o(2, 3).contiguous().__setitem__(0, o(2)),
        lambda: t(2, 3).__setitem__(0, t(2)),
    ),
    "gather of another rank": (lambda: o(2, 2).gather(0, Tensor([0])), lambda: t(2, 2).gather(0, i([0]))),
    "gather by floats": (lambda: o(2).gather(0, o(1)), lambda: t(2).gather(0, t(1))),
    "gather out of range": (lambda: o(2).gather(0, Tensor([5])), lambda: t(2).gather(0, i([5]))),
    "scatter out of range": (lambda: o(2).scatter(0, Tensor([5]), 1.0), lambda: t(2).scatter(0, i([5]), 1.0)),
    "scatter of another type": (
        lambda: o(2).scatter(0, Tensor([0]), Tensor([1])),
        lambda: t(2).scatter(0, i([0]), i([1])),
    ),
    "scatter by no way": (
        lambda: o(2).scatter(0, Tensor([0]), o(1), reduce="bad"),
        lambda: t(2).scatter(0, i([0]), t(1), reduce="bad"),
    ),
    "where of other sizes": (
        lambda: Tensor([True, False]).where(o(3), o(3)),
        lambda: torch.where(i([True, False]), t(3), t(3)),
    ),
    "linspace of less than nothing": (lambda: Tensor.linspace(0, 1, -1), lambda: torch.linspace(0, 1, -1)),
    "arange by 0": (lambda: Tensor.arange(0, 5, 0), lambda: torch.arange(0, 5, 0)),
    "ones of a negative size": (lambda: o(-1), lambda: t(-1)),
    "ones of a text": (lambda: o("a"), lambda: t("a")),
    "ones of a float": (lambda: o(2.5), lambda: t(2.5)),
    "ragged lists": (lambda: Tensor([[1, 2], [3]]), lambda: i([[1, 2], [3]])),
    "an object as data": (lambda: Tensor(object()), lambda: i(object())),
    "a number that does not fit": (lambda: Tensor([300], dtype="uint8"), lambda: i([300], dtype=torch.uint8)),
    "full of what does not fit": (
        lambda: Tensor.full((2,), 300, dtype="uint8"),
        lambda: i(300, dtype=torch.uint8),
    ),
    "a device that is not there": (lambda: Tensor([1], device="BAD"), lambda: i([1], device="bad")),
    "bits of floats": (lambda: o(2) & 1, lambda: t(2) & 1),
    "the complement of floats": (lambda: ~o(2), lambda: ~t(2)),
    "a sum with a text": (lambda: o(2) + "a", lambda: t(2) + "a"),
    "a sum with None": (lambda: o(2) + None, lambda: t(2) + None),
    "a float into ints": (lambda: Tensor([1]).__iadd__(1.5), lambda: i([1]).__iadd__(1.5)),
    "backward of two": (lambda: (o(2, requires_grad=True) * 2).backward(), lambda: (t(2, requires_grad=True) * 2).backward()),
    "backward of nothing": (
        lambda: Tensor([1.0], requires_grad=False).sum().backward(),
        lambda: t(1).sum().backward(),
    ),
    "backward from another shape": (
        lambda: (o(2, requires_grad=True) * 2).backward(o(3)),
        lambda: (t(2, requires_grad=True) * 2).backward(t(3)),
    ),
    "channels of a convolution": (lambda: o(1, 3, 5, 5).conv2d(o(4, 2, 3, 3)), lambda: F.conv2d(t(1, 3, 5, 5), t(4, 2, 3, 3))),
    "a kernel that is larger": (lambda: o(1, 1, 2, 2).conv2d(o(1, 1, 3, 3)), lambda: F.conv2d(t(1, 1, 2, 2), t(1, 1, 3, 3))),
    "a bias of a convolution": (
        lambda: o(1, 1, 5, 5).conv2d(o(4, 1, 3, 3), o(3)),
        lambda: F.conv2d(t(1, 1, 5, 5), t(4, 1, 3, 3), t(3)),
    ),
    "a pool that is larger": (lambda: o(1, 1, 2, 2).max_pool2d(3), lambda: F.max_pool2d(t(1, 1, 2, 2), 3)),
    "padding by an odd number": (lambda: o(2).pad((1,)), lambda: F.pad(t(2), (1,))),
    "padding by no way": (lambda: o(2).pad((1, 1), mode="bad"), lambda: F.pad(t(2), (1, 1), mode="bad")),
    "features of a layer": (lambda: nn.Linear(3, 2)(o(4)), lambda: torch.nn.Linear(3, 2)(t(4))),
    "channels of batch norm": (lambda: nn.BatchNorm(3)(o(1, 4, 2, 2)), lambda: torch.nn.BatchNorm2d(3)(t(1, 4, 2, 2))),
    "groups of channels": (lambda: nn.GroupNorm(2, 3), lambda: torch.nn.GroupNorm(2, 3)),
    "a row of no table": (lambda: nn.Embedding(3, 2)(Tensor([5])), lambda: torch.nn.Embedding(3, 2)(i([5]))),
    "a probability of 2": (lambda: nn.Dropout(2.0), lambda: torch.nn.Dropout(2.0)),
    "labels of another size": (
        lambda: o(2, 3).cross_entropy(Tensor([0, 1, 2])),
        lambda: F.cross_entropy(t(2, 3), i([0, 1, 2])),
    ),
    "a label that is no class": (lambda: o(2, 3).cross_entropy(Tensor([0, 5])), lambda: F.cross_entropy(t(2, 3), i([0, 5]))),
    "a loss by no way": (
        lambda: o(2, 3).cross_entropy(Tensor([0, 1]), reduction="bad"),
        lambda: F.cross_entropy(t(2, 3), i([0, 1]), reduction="bad"),
    ),
    "letters of einsum": (lambda: Tensor.einsum("ij,jk->il", o(2, 2), o(2, 2)), lambda: torch.einsum("ij,jk->il", t(2, 2), t(2, 2))),
    "a negative rate": (lambda: SGD([Tensor([1.0])], lr=-1), lambda: torch.optim.SGD([_learn()], lr=-1)),
    "no parameters": (lambda: SGD([]), lambda: torch.optim.SGD([])),
    "a Tensor as parameters": (lambda: SGD(Tensor([1.0])), lambda: torch.optim.SGD(_learn())),  # type: ignore[arg-type]
    "nesterov without a momentum": (
        lambda: SGD([Tensor([1.0])], nesterov=True),
        lambda: torch.optim.SGD([_learn()], lr=0.1, nesterov=True),
    ),
    "a beta of 2": (lambda: Adam([Tensor([1.0])], betas=(2, 0.9)), lambda: torch.optim.Adam([_learn()], betas=(2, 0.9))),
    "a negative eps": (lambda: Adam([Tensor([1.0])], eps=-1), lambda: torch.optim.Adam([_learn()], eps=-1)),
    "too many draws": (lambda: o(3).multinomial(4), lambda: t(3).multinomial(4)),
    "bounds in the wrong order": (lambda: Tensor.randint(2, low=5, high=2), lambda: torch.randint(5, 2, (2,))),
    "cholesky of no square": (lambda: o(2, 3).cholesky(), lambda: torch.linalg.cholesky(t(2, 3))),
    "a norm that is none": (lambda: o(2).norm("bad"), lambda: t(2).norm("bad")),
    "a state of another shape": (
        lambda: load_state_dict(nn.Linear(2, 2), {"weight": o(3, 3), "bias": o(2)}, verbose=False),
        lambda: torch.nn.Linear(2, 2).load_state_dict({"weight": t(3, 3), "bias": t(2)}),
    ),
    "a method that is none": (lambda: o(2).bad, lambda: t(2).bad),  # type: ignore[attr-defined]
    "a division by no way": (lambda: o(2).div(2, rounding_mode="bad"), lambda: t(2).div(2, rounding_mode="bad")),
}  # fmt: skip


def _raised(mistake: Mistake) -> Exception:
    with pytest.raises(Exception) as caught:
        mistake()
    return caught.value


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_the_builtin_that_torch_raises(name: str) -> None:
    mine, theirs = [_raised(mistake) for mistake in MISTAKES[name]]
    wanted = [kind for kind in BUILTINS if isinstance(theirs, kind)]
    assert wanted and all(isinstance(mine, kind) for kind in wanted), (mine, theirs)
    assert len(str(mine)) > 12
