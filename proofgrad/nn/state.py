"""The Tensors of a model by name.

Owns: finding them in objects, lists and dicts; giving them new values. Does not own: files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from proofgrad import Tensor


def get_state_dict(model: Any, prefix: str = "") -> dict[str, Tensor]:
    """Every Tensor in the model by its path: attributes, list places and keys joined by dots.

    Example:
        get_state_dict(model)["layers.0.weight"]
    """
    found: dict[str, Tensor] = {}
    seen: set[int] = set()
    pending: list[tuple[str, Any]] = [(prefix.strip("."), model)]
    while pending:
        path, value = pending.pop(0)
        if isinstance(value, Tensor):
            found[path] = value
            continue
        if id(value) in seen:
            continue
        seen.add(id(value))
        pending[:0] = [(f"{path}.{name}".strip("."), part) for name, part in _parts(value)]
    return found


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        yield from ((str(key), part) for key, part in value.items())
    elif isinstance(value, (list, tuple)):
        yield from ((str(place), part) for place, part in enumerate(value))
    elif hasattr(value, "__dict__") and not isinstance(value, type):
        yield from vars(value).items()


def get_parameters(model: Any) -> list[Tensor]:
    """Every Tensor in the model, as an optimiser takes them."""
    return list(get_state_dict(model).values())


def load_state_dict(model: Any, state: Mapping[str, Tensor], strict: bool = True) -> None:
    """Give the Tensors of the model the values of `state`, by name.

    Raises: KeyError if `strict` and names are missing or left over; ShapeError, DtypeError.
    """
    own = get_state_dict(model)
    missing, extra = sorted(set(own) - set(state)), sorted(set(state) - set(own))
    if strict and (missing or extra):
        raise KeyError(f"the state does not fit the model: missing {missing}, unknown {extra}")
    loaded = [name for name in own if name in state]
    for name in loaded:
        own[name].assign(state[name].to(own[name].device))
    if loaded:
        Tensor.realize(*[own[name] for name in loaded])
