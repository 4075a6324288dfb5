"""Sequences, numbers and nested objects: what scripts around a model pick apart.

Owns: these functions. Does not own: anything of Tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from itertools import chain
from operator import mul
from typing import Any, TypeVar

_Item = TypeVar("_Item")
_Key = TypeVar("_Key")


def prod(x: Iterable[Any]) -> Any:
    """The product, of anything that multiplies; 1 of nothing."""
    return reduce(mul, x, 1)


def dedup(x: Iterable[_Item]) -> list[_Item]:
    """Each item once, where it first stood."""
    return list(dict.fromkeys(x))


def argfix(*x: Any) -> tuple[Any, ...]:
    """Arguments that were given one by one, or as one tuple or list. Raises: ValueError for a mixture."""
    if not x or not isinstance(x[0], (tuple, list)):
        return x
    if len(x) > 1:
        raise ValueError(f"give numbers one by one or in one tuple, not {x}")
    return tuple(x[0])


def argsort(x: Sequence[Any]) -> Any:
    """The positions of the items from the least to the greatest; those of equal items in order. A tuple of a tuple."""
    positions = sorted(range(len(x)), key=x.__getitem__)
    return tuple(positions) if isinstance(x, tuple) else positions


def all_same(items: Sequence[Any]) -> bool:
    """Whether no item differs from the first; of nothing, True."""
    return all([item == items[0] for item in items])


def all_int(items: Iterable[Any]) -> bool:
    """Whether every item is an int."""
    return all([isinstance(item, int) for item in items])


def make_tuple(x: int | Sequence[int], cnt: int) -> tuple[int, ...]:
    """A number so many times, or the numbers themselves."""
    return (x,) * cnt if isinstance(x, int) else tuple(x)


def to_tuple(x: Any) -> tuple[Any, ...]:
    """A tuple itself; of anything else a tuple of that alone."""
    return x if isinstance(x, tuple) else (x,)


def flatten(nested: Iterable[Iterable[_Item]]) -> list[_Item]:
    """The items of the items, one level deep."""
    return list(chain.from_iterable(nested))


def fully_flatten(nested: Any) -> list[Any]:
    """Everything inside, however deep; text is one item, and so is what has no length. Arrays: their numbers."""
    if getattr(nested, "shape", None) == ():
        return [nested[()]]
    if isinstance(nested, (str, bytes)) or not hasattr(nested, "__getitem__"):
        return [nested]
    return flatten([fully_flatten(item) for item in nested])


def is_numpy_ndarray(x: Any) -> bool:
    """Is this an array of numpy? It is not imported for that."""
    return f"{type(x).__module__}.{type(x).__qualname__}" == "numpy.ndarray"


def get_shape(x: Any) -> tuple[int, ...]:
    """The sizes of nested lists and tuples, () of all else. Raises: ValueError if they are ragged."""
    if is_numpy_ndarray(x) or not isinstance(x, (list, tuple)):
        return tuple(getattr(x, "shape", ()))
    shapes = [get_shape(part) for part in x]
    if not all_same(shapes):
        raise ValueError(f"ragged lists: the parts of {x!r} have the shapes {dedup(shapes)}")
    return (len(shapes), *(shapes[0] if shapes else ()))


def ceildiv(num: Any, amt: Any) -> Any:
    """`num / amt`, the next whole number from there on."""
    return -(num // -amt)


def round_up(num: int, amt: int) -> int:
    """The least multiple of `amt` that is not below `num`."""
    return -(num // -amt) * amt


def merge_dicts(ds: Iterable[dict[_Key, Any]]) -> dict[_Key, Any]:
    """All keys of all. Raises: RuntimeError for a key with two values."""
    merged: dict[_Key, Any] = {}
    for one in ds:
        for key, value in one.items():
            if merged.setdefault(key, value) != value:
                raise RuntimeError(
                    f"{key!r} is {merged[key]!r} in one dict and {value!r} in another"
                )
    return merged


def partition(itr: Iterable[_Item], fxn: Callable[[_Item], Any]) -> tuple[list[_Item], list[_Item]]:
    """The items of which `fxn` is true, and the others."""
    chosen: list[_Item] = []
    others: list[_Item] = []
    for item in itr:
        (chosen if fxn(item) else others).append(item)
    return chosen, others


def unwrap(x: _Item | None) -> _Item:
    """`x`. Raises: ValueError where it is None."""
    if x is None:
        raise ValueError("there is a value needed, and it is None")
    return x


def get_single_element(x: Sequence[_Item]) -> _Item:
    """The one item. Raises: ValueError for none or several."""
    if len(x) != 1:
        raise ValueError(f"one item is needed, and there are {len(x)}")
    return x[0]


def get_child(obj: Any, key: str) -> Any:
    """What is found by a path as `get_state_dict` names it: `layers.0.weight`.

    Raises: AttributeError, KeyError, IndexError where a part leads nowhere.
    """
    for part in key.split("."):
        if isinstance(obj, dict):
            obj = obj[int(part)] if part not in obj and part.isdecimal() else obj[part]
        else:
            obj = obj[int(part)] if part.isdecimal() else getattr(obj, part)
    return obj
