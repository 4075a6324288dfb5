"""The register of Tensors: it knows each from when it is made until it is gone, and keeps none alive."""

from __future__ import annotations

import copy
import gc
import pickle
import threading
from collections.abc import Callable

import pytest

from proofgrad import Tensor, nn
from proofgrad.core.tensor.methods.live import _REGISTER, FEWEST, live_tensors


class Named(Tensor):
    """As users derive from Tensor: with a comparison of their own, and so without a hash."""

    def __eq__(self, other: object) -> bool:  # type: ignore[override]
        raise AssertionError("a register compares nothing")

    __hash__ = None  # type: ignore[assignment]


def is_known(tensor: Tensor) -> bool:
    return any(other is tensor for other in live_tensors())


WAYS: dict[str, Callable[[], Tensor]] = {
    "data": lambda: Tensor([1.0, 2.0]),
    "operation": lambda: Tensor([1.0]) + 1,
    "view": lambda: Tensor([1.0, 2.0])[1:],
    "random": lambda: Tensor.rand(3),
    "parameter": lambda: nn.Linear(2, 2).weight,
    "copy": lambda: copy.copy(Tensor([1.0])),
    "deep copy": lambda: copy.deepcopy(Tensor([1.0])),
    "pickle": lambda: pickle.loads(pickle.dumps(Tensor([1.0]))),
    "derived": lambda: Named([1.0]),
    "made of derived": lambda: Named([1.0]) * 2,
    "gradient": lambda: _gradient(),
}


def _gradient() -> Tensor:
    x = Tensor([3.0], requires_grad=True)
    x.square().sum().backward()
    assert x.grad is not None
    return x.grad


@pytest.mark.parametrize("name", WAYS)
def test_it_is_known_until_it_is_gone(name: str) -> None:
    gc.collect()
    before = len(live_tensors())
    tensor = WAYS[name]()
    assert is_known(tensor)
    del tensor
    gc.collect()
    assert len(live_tensors()) == before


def test_what_could_not_be_made_is_not_known() -> None:
    before = len(live_tensors())
    with pytest.raises(ValueError):
        Tensor([[1.0], [2.0, 3.0]])
    gc.collect()
    assert len(live_tensors()) == before


def test_threads_may_make_tensors_meanwhile() -> None:
    wrong: list[BaseException] = []

    def make() -> None:
        try:
            for _ in range(2000):
                Tensor([1.0]).reshape(1, 1)
        except BaseException as error:  # noqa: BLE001  (told below)
            wrong.append(error)

    makers = [threading.Thread(target=make) for _ in range(3)]
    for maker in makers:
        maker.start()
    while any(maker.is_alive() for maker in makers):
        assert all(isinstance(tensor, Tensor) for tensor in live_tensors())
    assert not wrong


def test_the_register_forgets_those_that_are_gone_and_no_other() -> None:
    kept = [Tensor([1.0]) for _ in range(3)]
    for k in range(20 * FEWEST):
        Tensor._new(kept[0]._uop, "CPU")
        if k % FEWEST == 0:
            kept.append(Tensor([2.0]))
    found = {id(tensor) for tensor in live_tensors()}
    assert found.issuperset([id(tensor) for tensor in kept])
    assert len(_REGISTER) <= 2 * len(found) + FEWEST
    assert [id(t) for t in live_tensors() if id(t) in {id(one) for one in kept}] == [*map(id, kept)]


def test_no_thread_loses_a_tensor_of_another() -> None:
    kept: list[Tensor] = []

    def make() -> None:
        for k in range(3000):
            tensor = Tensor._new(node, "CPU")
            if k % 50 == 0:
                kept.append(tensor)

    node = Tensor([1.0])._uop
    makers = [threading.Thread(target=make) for _ in range(3)]
    for maker in makers:
        maker.start()
    for maker in makers:
        maker.join()
    assert {id(tensor) for tensor in live_tensors()}.issuperset(map(id, kept))
