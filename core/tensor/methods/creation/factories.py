"""New Tensors by formula: constants, counters, diagonals.

Owns: the constructor, factories without randomness. Does not own: what data is as a graph (data_nodes.py), random numbers (random.py).
"""

from __future__ import annotations

from functools import lru_cache
from math import inf, prod
from pathlib import Path
from typing import Any, Self

from proofgrad.core.ir.dtypes import DType, dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.shapes import Shape, ShapeError, at_least, is_plain, show
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.data.arguments import (
    Flag,
    Real,
    Scalar,
    Whole,
    as_sizes,
    checked_shape,
    normal_size,
    several,
    takes_numbers,
)
from proofgrad.core.tensor.data.errors import (
    ArgumentError,
    AxisError,
    DeviceError,
    DtypeError,
    RangeError,
    StepError,
)
from proofgrad.core.tensor.data.nodes import broadcast_node, constant_node
from proofgrad.core.tensor.data.promotion import as_dtype, scalar_dtype
from proofgrad.core.tensor.methods.base import TensorBase, describe, own_value
from proofgrad.core.tensor.methods.creation.data_nodes import file_node, node_of
from proofgrad.core.tensor.methods.disk import make_file, node_in_file, path_of
from proofgrad.core.tensor.methods.indexing.take import is_position
from proofgrad.core.tensor.methods.live import register
from proofgrad.core.tensor.methods.made_once import made_once
from proofgrad.core.tensor.methods.movement.joining import Movement
from proofgrad.core.tensor.runtime.device import canonical_device, is_on_disk

_SECONDS_TO_WAIT = 30  # for a server to answer


class Factories(Movement):
    """The constructor, constants and counters. `dtype` may be a name; `device` None is the default."""

    __slots__ = ()

    def __init__(
        self,
        data: Any,
        device: str | None = None,
        dtype: DType | str | None = None,
        requires_grad: Flag | None = None,
    ) -> None:
        """A Tensor of a number, which has no say in the types of results as a Python number has none, nested lists, a range, bytes, a file, an array, a variable, or a graph node.

        Bytes and the file of a Path are uint8, or as many elements of `dtype` as they hold. The file is not read: the
        Tensor is on `DISK:path`, or on `device`, where it is read when computed. Lists may hold Tensors of one shape. numpy
        arrays are copied; see from_dlpack.

        Raises: ShapeError for ragged lists, OverflowError for a number that does not fit.

        Example:
            Tensor([[1, 2], [3, 4]])  # shape (2, 2), dtypes.int
        """
        self._grad, self._awaited, self._base = None, (), None
        wanted = None if dtype is None else as_dtype(dtype)
        if isinstance(data, Path):
            data, wanted = self._new(*file_node(data, wanted)), None
            device = data.device if device is None else device
        self.device = canonical_device(device)
        if is_on_disk(self.device) and getattr(data, "device", None) != self.device:
            raise DeviceError(
                f"values are written to a file by .to('disk:...') of a Tensor that is elsewhere; to compute"
                f" with what is in {device}, move it first, with .to({canonical_device(None)!r})"
            )
        self._uop = node_of(self, data, wanted)
        self._become_leaf(requires_grad)
        if dtype is None and isinstance(data, (bool, int, float)):
            TensorBase._numbers[id(self)] = self
        register(self)

    @classmethod
    def _constant(cls, node: UOp, device: str | None, requires_grad: Flag | None) -> Self:
        return cls._leaf(node, canonical_device(device), requires_grad)

    @classmethod
    @takes_numbers
    def full(
        cls,
        shape: Whole | Shape,
        fill_value: Scalar,
        dtype: DType | str | None = None,
        device: str | None = None,
        buffer: Flag = True,
        requires_grad: Flag | None = None,
    ) -> Self:
        """Every element is `fill_value`. `buffer` has no effect: a constant needs none until written."""
        sizes = checked_shape(several("the shape", shape))
        if isinstance(fill_value, UOp):
            line = broadcast_node(cls(fill_value, device, dtype)._uop, sizes)
            return cls._constant(line, device, requires_grad)
        has_axes = bool(getattr(fill_value, "ndim", 0))
        is_number = isinstance(fill_value, (bool, int, float)) or hasattr(fill_value, "__float__")
        if has_axes or not is_number or isinstance(fill_value, type):
            raise DtypeError(f"elements are numbers, not {fill_value!r}")
        kind = scalar_dtype(fill_value) if dtype is None else as_dtype(dtype)
        return cls._constant(constant_node(fill_value, kind, sizes), device, requires_grad)

    @classmethod
    def zeros(
        cls,
        *shape: Any,
        dtype: DType | str | None = None,
        device: str | None = None,
        buffer: Flag = True,
        requires_grad: Flag | None = None,
    ) -> Self:
        """Every element is 0; options as for full."""
        return cls.full(as_sizes(shape), 0.0, dtype, device, buffer, requires_grad)

    @classmethod
    def ones(
        cls,
        *shape: Any,
        dtype: DType | str | None = None,
        device: str | None = None,
        buffer: Flag = True,
        requires_grad: Flag | None = None,
    ) -> Self:
        """Every element is 1; options as for full."""
        return cls.full(as_sizes(shape), 1.0, dtype, device, buffer, requires_grad)

    @classmethod
    def empty(
        cls,
        *shape: Any,
        device: str | None = None,
        dtype: DType | str | None = None,
        requires_grad: Flag | None = None,
    ) -> Self:
        """Elements of no particular value; here they are zeros, and on `disk:path` what that file holds.

        Where there is no such file one of zeros is made.
        """
        kind = as_dtype(dtypes.default_float if dtype is None else dtype)
        where = canonical_device(device)
        if is_on_disk(where):
            sizes = checked_shape(as_sizes(shape))
            make_file(where, prod(sizes) * kind.itemsize)
            return cls._leaf(node_in_file(path_of(where), sizes, kind), where, requires_grad)
        return cls.zeros(*shape, device=device, dtype=kind, requires_grad=requires_grad)

    @classmethod
    def invalids(
        cls, *shape: Any, device: str | None = None, dtype: DType | str | None = None
    ) -> Self:
        """As empty: elements that nobody is meant to read."""
        return cls.empty(*shape, device=device, dtype=dtype)

    @classmethod
    def const(
        cls,
        b: Scalar | tuple[Scalar, ...],
        dtype: DType | str | None = None,
        device: str | None = None,
    ) -> Self:
        """A number as a 0-d Tensor; several as a line."""
        return cls(b, device, dtype) if isinstance(b, tuple) else cls.full((), b, dtype, device)

    def _alike(self, options: dict[str, Any]) -> dict[str, Any]:
        """The options with the type and the device of this Tensor where none are given."""
        given = {name: value for name, value in options.items() if value is not None}
        return {"dtype": self.dtype, "device": self.device} | given

    def const_like(self, b: Scalar, dtype: DType | str | None = None) -> Self:
        """As full_like."""
        return self.full_like(b, dtype=dtype)

    def full_like(
        self,
        fill_value: Scalar,
        dtype: DType | str | None = None,
        device: str | None = None,
        buffer: Flag = True,
        requires_grad: Flag | None = None,
    ) -> Self:
        """Every element is `fill_value`; shape, type and device of this Tensor."""
        options = {"dtype": dtype, "device": device, "requires_grad": requires_grad}
        return type(self).full(self.shape, fill_value, **self._alike(options))

    def zeros_like(
        self,
        dtype: DType | str | None = None,
        device: str | None = None,
        buffer: Flag = True,
        requires_grad: Flag | None = None,
    ) -> Self:
        """As full_like with 0."""
        return self.full_like(0, dtype, device, buffer, requires_grad)

    def ones_like(
        self,
        dtype: DType | str | None = None,
        device: str | None = None,
        buffer: Flag = True,
        requires_grad: Flag | None = None,
    ) -> Self:
        """As full_like with 1."""
        return self.full_like(1, dtype, device, buffer, requires_grad)

    def empty_like(
        self,
        dtype: DType | str | None = None,
        device: str | None = None,
        buffer: Flag = True,
        requires_grad: Flag | None = None,
    ) -> Self:
        """As empty; shape, type and device of this Tensor."""
        return self.full_like(0, dtype, device, buffer, requires_grad)

    @classmethod
    def from_url(cls, url: str, gunzip: Flag = False, **kwargs: Any) -> Self:
        """The bytes behind a URL (http, https, file) as uint8, or as `dtype`.

        `gunzip`: unpacked first. Raises: OSError naming the URL if it cannot be read.
        """
        import gzip
        from urllib.request import urlopen

        try:
            with urlopen(url, timeout=_SECONDS_TO_WAIT) as answer:
                data = answer.read()
        except OSError as error:
            raise OSError(f"cannot read {url}: {error}") from error
        return cls(gzip.decompress(data) if gunzip else data, **kwargs)

    @classmethod
    @takes_numbers
    def arange(
        cls,
        start: Whole | Real,
        stop: Whole | Real | None = None,
        step: Whole | Real = 1,
        dtype: DType | str | None = None,
        device: str | None = None,
        requires_grad: Flag | None = None,
    ) -> Self:
        """start, start + step, ... up to but not including stop.

        Integers have the default type, or int64 where they do not fit it.
        Raises: OverflowError if they do not fit `dtype`.
        """
        begin, end = (0, start) if stop is None else (start, stop)
        for value in (begin, end, step):
            is_number = isinstance(value, (int, float)) and -inf < value < inf
            if not is_number and not isinstance(value, UOp):
                raise DtypeError(f"arange takes finite numbers, not {describe(value)}")
        if step == 0:
            raise StepError("the step of arange cannot be 0")
        if isinstance(step, UOp):
            raise DtypeError(
                "the step of arange is a number, for a size is not divided by a variable;"
                " write Tensor.arange(count) * step + start"
            )
        if isinstance(begin, UOp) or isinstance(end, UOp):
            return cls._arange_of_sizes(begin, end, step, dtype, device, requires_grad)
        whole = not any(isinstance(v, float) for v in (begin, end, step))
        kind = scalar_dtype(0 if whole else 0.0) if dtype is None else as_dtype(dtype)
        count = max(0, -int(-(end - begin) // step) if whole else _steps(begin, end, step))
        ends = (begin, begin + (count - 1) * step) if count else (0, 0)
        if whole and dtype is None and not _fits(ends, kind):
            kind = dtypes.int64
        if kind.is_int and not _fits(ends, kind):
            raise RangeError(f"arange from {ends[0]} to {ends[1]} does not fit {kind.name}")
        counts = dtypes.int32 if kind.is_float or kind.is_bool else kind
        line = cls._new(UOp(Ops.IOTA, counts, (), count), canonical_device(device)).cast(kind)
        if step != 1:
            line = line * line._with(constant_node(step, kind, line.shape))
        if begin != 0:
            line = line + line._with(constant_node(begin, kind, line.shape))
        return cls._constant(line._uop, device, requires_grad)

    @classmethod
    def _arange_of_sizes(
        cls,
        begin: Any,
        end: Any,
        step: Any,
        dtype: DType | str | None,
        device: str | None,
        requires_grad: Flag | None,
    ) -> Self:
        """arange of which an end is made of variables: so many numbers as its greatest values allow fit the type."""
        if not all(isinstance(v, (int, UOp)) for v in (begin, end)) or not isinstance(step, int):
            raise TypeError(
                "the ends of arange are ints where one of them is made of variables, and so is its step"
            )
        span = end - begin if step > 0 else begin - end
        count = normal_size((span + abs(step) - 1) // abs(step))
        if not at_least(count, 0):
            shown = [show((v,))[1:-2] for v in (begin, end)]
            raise ShapeError(f"arange from {shown[0]} to {shown[1]} may have less than no elements")
        kind = dtypes.default_int if dtype is None else as_dtype(dtype)
        ends = [*_ends(begin), *_ends(end)]
        if kind.is_int and not _fits(tuple(ends), kind):
            raise RangeError(f"arange of numbers up to {max(ends)} does not fit {kind.name}")
        counts = dtypes.int32 if kind.is_float or kind.is_bool else kind
        line = cls._new(UOp(Ops.IOTA, counts, (), count), canonical_device(device)).cast(kind)
        for value, op in ((step, Ops.MUL), (begin, Ops.ADD)):
            if isinstance(value, UOp) or value != (1 if op is Ops.MUL else 0):
                node = cls(value, device, kind)._uop
                line = line._with(UOp(op, kind, (line._uop, broadcast_node(node, line.shape))))
        return cls._constant(line._uop, device, requires_grad)

    @classmethod
    @takes_numbers
    def linspace(
        cls,
        start: Whole | Real,
        stop: Whole | Real,
        steps: Whole,
        dtype: DType | str | None = None,
        device: str | None = None,
        requires_grad: Flag | None = None,
    ) -> Self:
        """`steps` numbers at equal distances from start to stop, both included."""
        if not at_least(steps, 0):
            raise ArgumentError(f"linspace needs 0 steps or more, not {steps}")
        kind = as_dtype(dtypes.default_float if dtype is None else dtype)
        if kind.is_bool:
            raise DtypeError("linspace gives numbers, not bools")
        wide = dtypes.float64 if kind.bits > 32 else dtypes.default_float
        line = cls.arange(steps, dtype=wide, device=device)
        if isinstance(steps, int):
            positions = line * ((stop - start) / (steps - 1) if steps > 1 else 0.0)
        else:
            positions = line * (stop - start) / cls(steps - 1, device, wide).maximum(1)
        result = (positions + float(start)).cast(kind)
        return cls._constant(result._uop, device, requires_grad)

    @classmethod
    @takes_numbers
    def eye(
        cls,
        n: Whole,
        m: Whole | None = None,
        dtype: DType | str | None = None,
        device: str | None = None,
        requires_grad: Flag | None = None,
    ) -> Self:
        """Ones on the diagonal of n rows and m columns."""
        kind = dtypes.default_float if dtype is None else as_dtype(dtype)
        columns = n if m is None else m
        if not (at_least(n, 0) and at_least(columns, 0)):
            raise ShapeError(f"eye of {n} rows and {columns} columns")
        make = _on_diagonal if is_plain((n, columns)) else _on_diagonal.__wrapped__
        node = make(cls, n, columns, kind, dtypes.default_int)
        # Equal constants are one node. A gradient is asked for this one: it is unlike every other.
        named = own_value(node) if kind.is_float and is_plain(node.shape) else node
        return cls._constant(named, device, requires_grad)

    @made_once
    def tril(self, diagonal: Whole = 0) -> Self:
        """Zero above the given diagonal of the last two axes."""
        return (self._row() + diagonal >= self._column()).where(self, False)

    @made_once
    def triu(self, diagonal: Whole = 0) -> Self:
        """Zero below the given diagonal of the last two axes."""
        return (self._row() + diagonal <= self._column()).where(self, False)

    def _row(self) -> Self:
        if self.ndim < 2:
            raise AxisError(f"tril and triu need 2 axes or more, not {self.shape}")
        return self._iota(self.shape[-2]).reshape((self.shape[-2], 1))

    def _column(self) -> Self:
        return self._iota(self.shape[-1])

    @takes_numbers
    @made_once
    def one_hot(self, num_classes: Whole) -> Self:
        """A last axis of `num_classes` ints: 1 at the position this Tensor names, else 0."""
        if not self.dtype.is_int:
            raise DtypeError(f"one_hot takes integers, not {self.dtype}")
        if not at_least(num_classes, 0):
            raise ArgumentError(f"one_hot needs 0 classes or more, not {num_classes}")
        return is_position(self.unsqueeze(-1), -1, num_classes).cast(dtypes.int32)


def _steps(begin: Real, end: Real, step: Real) -> Whole:
    """How many numbers a float arange has: the ceiling, as numpy takes it."""
    exact = (end - begin) / step
    return int(exact) + (exact > int(exact))


def _ends(size: Any) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else (size.vmin, size.vmax)


@lru_cache(maxsize=64)
def _on_diagonal(
    kind: type[Factories], rows: Whole, columns: Whole, dtype: DType, counts: DType
) -> UOp:
    """1 where the number of a row is that of a column, and 0, counted in the default type: made once for a size."""
    hits = kind.arange(rows).reshape((rows, 1)) == kind.arange(columns).reshape((1, columns))
    return hits.cast(dtype)._uop


def _fits(ends: tuple[Any, ...], dtype: DType) -> Flag:
    low, high = dtypes.min(dtype), dtypes.max(dtype)
    return all(low <= end <= high for end in ends)
