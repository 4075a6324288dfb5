"""Tensors and plain values in nested tuples, lists and dicts: what jitted functions take and give.

Owns: walking them, the pattern of a recorded call that later calls are compared with, structures
with holes for Tensors. Does not own: what is recorded (jit.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.shapes import is_plain, show, sizes
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.data.errors import JitError
from proofgrad.core.tensor.data.variables import has_values
from proofgrad.core.tensor.tensor import Tensor


@dataclass(frozen=True, slots=True)
class Leaf:
    """A Tensor or plain value, and the way to it."""

    path: str
    value: Any

    def text(self) -> str:
        """For people: what it is, and where."""
        kind = TensorKind.of(self.value) if isinstance(self.value, Tensor) else self.value
        return f"argument {self.path}: {kind!r}"


@dataclass(frozen=True, slots=True)
class TensorKind:
    """What a Tensor has to be like; holds no memory."""

    shape: Any
    dtype: Any
    device: str

    @staticmethod
    def of(tensor: Tensor) -> TensorKind:
        """The shape, dtype and device of `tensor`; of bound variables in the shape only the variables."""
        shape = tensor.shape
        if not is_plain(shape):
            shape = sizes().unbound(shape, {})
        return TensorKind(shape, tensor.dtype, tensor.device)

    def fits(self, tensor: Tensor, values: dict[str, int]) -> bool:
        """Whether `tensor` has this shape, dtype and device; the values of variables in its shape go into `values`."""
        node = tensor._uop
        if node.dtype is not self.dtype or tensor.device != self.device:
            return False
        shape = node.shape
        return shape == self.shape or (
            not is_plain(shape) and bool(sizes().unbound(shape, values) == self.shape)
        )

    def __repr__(self) -> str:
        return f"a Tensor of shape {show(self.shape)}, {self.dtype!r}, on {self.device}"


def leaves(value: Any, path: str = "") -> Iterator[Leaf]:
    """All parts of nested tuples, lists and dicts that are none of those."""
    if isinstance(value, (tuple, list)):
        for k, part in enumerate(value):
            yield from leaves(part, f"{path}[{k}]" if path else f"{k}")
    elif isinstance(value, dict):
        for key, part in value.items():
            yield from leaves(part, f"{path}[{key!r}]" if path else f"{key}")
    else:
        yield Leaf(path, value)


# -- arguments ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Plain:
    """A value that has to be the same at each call."""

    value: Any

    def fits(self, value: Any, values: dict[str, int]) -> bool:
        """Whether `value` is the recorded one, or equal to it and of its type."""
        known = self.value
        return value is known or (type(value) is type(known) and bool(value == known))

    def __repr__(self) -> str:
        return repr(self.value)


@dataclass(frozen=True, slots=True)
class PlainSize:
    """A bound variable, or a sum of such, which may have another value at each call."""

    size: Any  # without the values

    def fits(self, value: Any, values: dict[str, int]) -> bool:
        """Whether `value` is the same sum of variables; their values go into `values`."""
        if not isinstance(value, UOp):
            return False
        if value.op is Ops.BIND and value.src[0] is self.size:  # most often it is one variable
            number = value.src[1].arg
            if values.setdefault(self.size.arg[0], number) == number:
                return True
        if not sizes().is_size_or_number(value):
            return False
        return bool(sizes().unbound(value, values) == self.size)

    def __repr__(self) -> str:
        return str(sizes().show_size(self.size))


def pattern(value: Any) -> Any:
    """What a value has to be like: tuples and dicts of TensorKind and Plain."""
    if isinstance(value, Tensor):
        return TensorKind.of(value)
    if isinstance(value, (tuple, list)):
        return tuple([pattern(part) for part in value])
    if isinstance(value, dict):
        return {key: pattern(part) for key, part in value.items()}
    if isinstance(value, UOp) and sizes().is_size(value) and has_values(value):
        return PlainSize(sizes().unbound(value, {}))
    return Plain(value)


def kinds(like: Any) -> list[TensorKind]:
    """Those of a pattern, in the order in which `collect` finds its Tensors."""
    return [part for _, part in _parts(like) if type(part) is TensorKind]


def collect(value: Any, like: Any, tensors: list[Tensor], values: dict[str, int]) -> bool:
    """Is `value` like the pattern? Adds its Tensors, in the pattern's order, and variables' values.

    Every replay runs this, so nothing is made here but what is asked for.
    """
    if type(like) is TensorKind:
        if not isinstance(value, Tensor) or not like.fits(value, values):
            return False
        tensors.append(value)
        return True
    if type(like) is tuple:
        if not isinstance(value, (tuple, list)) or len(value) != len(like):
            return False
        for part, inner in zip(value, like):
            if not collect(part, inner, tensors, values):
                return False
        return True
    if type(like) is dict:
        if not isinstance(value, dict) or value.keys() != like.keys():
            return False
        return all(collect(value[key], inner, tensors, values) for key, inner in like.items())
    return bool(like.fits(value, values))


def check_values(name: str, values: dict[str, int]) -> None:
    """Raises: JitError for a variable of two values, of which a replay would know one."""
    for other in values:
        if sizes().has_other_value(other):
            first = other.split("@")[0]
            raise JitError(
                f"{name}: variable {first} is {values[first]} and {values[other]} in one call; use a"
                f" variable for each"
            )


def difference(given: Sequence[Any], expected: Sequence[Any]) -> tuple[str, str]:
    """For people: what the patterns expect where the values first are not like them, what is there."""
    found = [leaf for value in given for leaf in leaves(value)]
    wanted = [part for like in expected for part in _parts(like)]
    if len(found) != len(wanted):
        return f"{len(wanted)} arguments", f"{len(found)}"
    for leaf, (path, like) in zip(found, wanted):
        if leaf.path != path or not collect(leaf.value, like, [], {}):
            return f"argument {path}: {like!r}", leaf.text()
    return "other lists, tuples and dicts around its arguments", "these"


def _parts(like: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """The leaves of a pattern, with the way to each."""
    if type(like) is tuple:
        for k, part in enumerate(like):
            yield from _parts(part, f"{path}[{k}]" if path else f"{k}")
    elif type(like) is dict:
        for key, part in like.items():
            yield from _parts(part, f"{path}[{key!r}]" if path else f"{key}")
    else:
        yield path, like


# -- results ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Hole:
    """Where a result is put into the nested structure: its number, or an argument's."""

    number: int
    is_argument: bool = False


def template(value: Any, hole: Callable[[Tensor], Any]) -> Any:
    """The structure of a result with `hole(tensor)` in place of each Tensor."""
    if isinstance(value, (tuple, list)):
        parts = [template(part, hole) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    if isinstance(value, dict):
        return {key: template(part, hole) for key, part in value.items()}
    return hole(value) if isinstance(value, Tensor) else value


def filled(structure: Any, results: Sequence[Any], arguments: Sequence[Tensor]) -> Any:
    """A template with Tensors in its holes."""
    if isinstance(structure, Hole):
        return (arguments if structure.is_argument else results)[structure.number]
    if isinstance(structure, (tuple, list)):
        parts = [filled(part, results, arguments) for part in structure]
        return type(structure)(*parts) if hasattr(structure, "_fields") else type(structure)(parts)
    if isinstance(structure, dict):
        return {key: filled(part, results, arguments) for key, part in structure.items()}
    return structure
