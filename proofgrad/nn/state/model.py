"""The Tensors of a model by name.

Owns: finding them in objects, lists and dicts; giving them new values. Does not own: files.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, MutableMapping
from types import ModuleType
from typing import Any

from proofgrad import ShapeError, Tensor
from proofgrad.core.ir.shapes import show
from proofgrad.core.messages import warn


def get_state_dict(
    obj: Any, prefix: str = "", tensor_type: type[Any] = Tensor
) -> dict[str, Tensor]:
    """Every Tensor in the object by its path: attributes, list positions and keys joined by dots.

    What is there twice has two names. `prefix` stands before each as it is: "model." of "weight" makes "model.weight".

    Example:
        get_state_dict(model)["layers.0.weight"]
    """
    found: dict[str, Tensor] = {}
    _collect(obj, prefix, tensor_type, found, ())
    return found


def _collect(
    value: Any, path: str, tensor_type: type[Any], found: dict[str, Tensor], around: tuple[Any, ...]
) -> None:
    """`path` ends with a dot; `around` are the objects that hold this one: one that holds itself is not entered again."""
    if isinstance(value, tensor_type):
        found[path.strip(".")] = value
    elif not any(value is outer for outer in around):
        for name, part in _parts(value):
            _collect(part, f"{path}{name}.", tensor_type, found, (*around, value))


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    if hasattr(value, "_asdict"):
        yield from value._asdict().items()
    elif isinstance(value, Mapping):
        yield from ((str(key), part) for key, part in value.items())
    elif isinstance(value, (list, tuple)):
        yield from ((str(position), part) for position, part in enumerate(value))
    elif not isinstance(value, (type, ModuleType)):
        for name in _slots(type(value)):
            if hasattr(value, name):
                yield name, getattr(value, name)
        yield from getattr(value, "__dict__", {}).items()


def _slots(kind: type) -> list[str]:
    names: list[str] = []
    for base in reversed(kind.__mro__):
        slots = base.__dict__.get("__slots__", ())
        names += [slots] if isinstance(slots, str) else list(slots)
    return [name for name in names if not name.startswith("__")]


def get_parameters(obj: Any) -> list[Tensor]:
    """Every Tensor in the object, as an optimiser takes them."""
    return list(get_state_dict(obj).values())


def load_state_dict(
    model: Any,
    state_dict: Mapping[str, Tensor],
    strict: bool = True,
    verbose: bool = False,
    consume: bool = False,
    realize: bool = True,
) -> list[Tensor]:
    """Give the Tensors of the model the values and types of `state_dict`, by name; those loaded.

    They stay on their devices. Names that the model lacks are left out with a warning; names that
    `state_dict` lacks are an error if `strict`. `consume` takes each value out of the dict.
    `verbose` says on stderr what was loaded.

    Raises: StateError (a KeyError and a RuntimeError), ShapeError naming the Tensor; then nothing is loaded.
    """
    own = get_state_dict(model)
    _check_names(own, state_dict, strict)
    names = [name for name in own if name in state_dict]
    new = {name: _fitting(name, own[name], state_dict[name]) for name in names}
    start = time.perf_counter()
    for name in names:
        own[name].replace(new[name].to(own[name].device))
        if consume and isinstance(state_dict, MutableMapping):
            del state_dict[name]
    loaded = [own[name] for name in names]
    if realize and loaded:
        Tensor.realize(*loaded)
    for tensor in loaded:  # no gradient of theirs is that of a Tensor of the dict
        tensor.assign(tensor.detach())
    if verbose:
        megabytes = sum(tensor.nbytes() for tensor in loaded) / 1e6
        seconds = time.perf_counter() - start
        print(f"{len(loaded)} tensors, {megabytes:.1f} MB, {seconds:.2f} s", file=sys.stderr)
    return loaded


class StateError(KeyError, RuntimeError):
    """A state that lacks Tensors of the model."""

    def __str__(self) -> str:
        return str(self.args[0])


def _check_names(own: Mapping[str, Tensor], given: Mapping[str, Tensor], strict: bool) -> None:
    missing, extra = sorted(set(own) - set(given)), sorted(set(given) - set(own))
    if strict and missing:
        raise StateError(
            f"the state does not fit the model: missing {missing}, unknown {extra};"
            " strict=False loads what is there"
        )
    if extra:
        warn(f"not in the model, and not loaded: {extra}")


def _fitting(name: str, own: Tensor, given: Tensor) -> Tensor:
    """The value in the shape of its position; one element may be () or (1,)."""
    if not isinstance(given, Tensor):
        kind = type(given)
        raise TypeError(
            f"{name} is a {kind.__module__}.{kind.__qualname__}; a state is made of Tensors"
        )
    if given.shape == own.shape:
        return given
    if {given.shape, own.shape} == {(), (1,)}:
        return given.reshape(own.shape)
    raise ShapeError(
        f"cannot load {name}: the model has shape {show(own.shape)}, the state {show(given.shape)}"
    )
