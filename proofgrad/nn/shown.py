"""How layers and optimizers print themselves.

Owns: the text, made of what an object has as attributes: shapes of Tensors, numbers and words, and layers below it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from proofgrad import Tensor
from proofgrad.nn.options import KnownOptions

INSTEAD = {
    "parameters": "nn.state.get_parameters(layer)",
    "named_parameters": "nn.state.get_state_dict(layer).items()",
    "state_dict": "nn.state.get_state_dict(layer)",
    "load_state_dict": "nn.state.load_state_dict(layer, state)",
    "forward": "a call: layer(x)",
    "train": "`with Tensor.train():` around the steps",
    "eval": "nothing: outside of `with Tensor.train():` layers evaluate",
    "to": "`tensor.to_(device)` of each of nn.state.get_parameters(layer)",
    "cuda": "`tensor.to_('CUDA')` of each of nn.state.get_parameters(layer)",
    "zero_grad": "optimizer.zero_grad()",
    "requires_grad_": "`tensor.requires_grad_(False)` of each of nn.state.get_parameters(layer)",
    "modules": "vars(layer): layers are attributes",
    "children": "vars(layer): layers are attributes",
}  # fmt: skip


class Shown(KnownOptions):
    """Prints as the call that would make it, more or less: `Linear(weight=(4, 3), bias=(4,))`."""

    def __repr__(self) -> str:
        return shown(self)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Asked for what is not there. Raises: AttributeError, with what does the same."""
            told = f"; use {INSTEAD[name]}" if name in INSTEAD else ""
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{told}")


def shown(thing: Any) -> str:
    """The name of its class and its attributes; each layer below it on a line of its own."""
    name = type(thing).__name__
    parts = list(_parts(thing))
    if not any([is_layer for _, _, is_layer in parts]):
        return f"{name}({', '.join([_named(key, text) for key, text, _ in parts])})"
    lines = [
        f"  ({key}): {text}" if is_layer else f"  {_named(key, text)}"
        for key, text, is_layer in parts
    ]
    return f"{name}(\n" + "\n".join([line.replace("\n", "\n  ") for line in lines]) + "\n)"


def _named(key: str, text: str) -> str:
    return f"{key}={text}"


def _parts(thing: Any) -> Iterator[tuple[str, str, bool]]:
    """Name, text, and whether it is a layer."""
    for key, value in vars(thing).items():
        if key.startswith("_") or value is None:
            continue
        if isinstance(value, Tensor):
            yield key, str(value.shape), False
        elif isinstance(value, Shown):
            yield key, shown(value), True
        elif isinstance(value, (bool, int, float, str)) or _is_plain(value):
            yield key, repr(value), False
        elif isinstance(value, (list, tuple)):
            for number, item in enumerate(value):
                position = str(number) if key == "layers" else f"{key}.{number}"
                if not isinstance(item, Tensor):
                    yield position, _of_item(item), True


def _is_plain(value: Any) -> bool:
    return isinstance(value, (tuple, list)) and all(
        [isinstance(item, (bool, int, float, str)) for item in value]
    )


def _of_item(item: Any) -> str:
    if isinstance(item, Shown):
        return shown(item)
    return str(getattr(item, "__name__", type(item).__name__))
