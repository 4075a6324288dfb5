"""Values of Tensors outside of them: as Python numbers, in numpy, on other devices, in memory of others, in notebooks.

Owns: when memory is shared and when it is copied. Does not own: the structures of DLPack (core/tensor/data/dlpack.py),
when values are computed (core/tensor/runtime).
"""

from __future__ import annotations

import html
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar, Self

from proofgrad.core.ir.dtypes import DType, dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.shapes import Shape, show
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.data import dlpack
from proofgrad.core.tensor.data.arguments import (
    Flag,
    Real,
    Whole,
    as_sizes,
    checked_shape,
    plain_number,
)
from proofgrad.core.tensor.data.errors import ArgumentError, DtypeError, ElementError
from proofgrad.core.tensor.data.nodes import reshape_node
from proofgrad.core.tensor.data.promotion import as_dtype
from proofgrad.core.tensor.data.storage import nest, unpack
from proofgrad.core.tensor.methods.base import TensorBase, describe
from proofgrad.core.tensor.methods.creation.factories import Factories
from proofgrad.core.tensor.methods.disk import bytes_of_view, moved_node
from proofgrad.core.tensor.methods.numpy_calls import called_with_values, operator_method
from proofgrad.core.tensor.runtime import reading
from proofgrad.core.tensor.runtime.canonical import computed
from proofgrad.core.tensor.runtime.device import Device, canonical_device, is_on_disk
from proofgrad.core.tensor.runtime.lent_memory import note_lent
from proofgrad.core.tensor.runtime.memory import is_view, memory_of
from proofgrad.core.tensor.runtime.recording import refuse_read
from proofgrad.core.tensor.runtime.scheduling import shown
from proofgrad.core.tensor.runtime.table import new_buffer

_SHOWN_IN_HTML = 100  # elements


class Interop(Factories):
    """Values and memory: Python numbers, numpy, other devices, other libraries."""

    __slots__ = ()
    __array_priority__: ClassVar[Whole] = 1000  # older numpy asks who of two operands is in charge

    if TYPE_CHECKING:  # tensor.py computes

        def realize(self, *others: Any, do_update_stats: bool = True) -> Self: ...

    # -- reading values out -----------------------------------------------------------------------

    def _bytes(self) -> bytearray:
        if is_on_disk(self.device):
            return bytes_of_view(self._uop)
        return reading.read(self._uop, self.device)

    def _bytes_seen(self) -> bytearray | memoryview:
        """The same for who only reads them, and at once: what is in memory is shown as it lies there."""
        there = None if is_on_disk(self.device) else reading.at_hand(self._uop)
        return self._bytes() if there is None else there

    def data(self) -> Any:
        """The elements as a memoryview of this shape (bfloat16 and 8-bit floats: of their bytes)."""
        # Before Python 3.12 only numpy makes a view of this format.
        if self.dtype is dtypes.float16:
            return memoryview(self.numpy())
        raw: Any = memoryview(self._bytes())
        code = _FORMATS.get(self.dtype)
        if code is None:
            return raw
        return (
            raw.cast(code, reading.value_of_shape(self.shape)) if self.numel() else raw.cast(code)
        )

    def numpy(self) -> Any:
        """The elements as a numpy array of its own; bfloat16 and the 8-bit floats widen to float32."""
        import numpy

        if self.dtype is dtypes.bfloat16 or self.dtype.is_code:
            there = self.to(None) if is_on_disk(self.device) else self
            return there.cast(dtypes.float32).numpy()
        if is_on_disk(self.device):
            found: Any = bytes_of_view(self._uop)
        else:  # where no zeros are written before, as to a bytearray
            found = reading.read_into(lambda n: numpy.empty(n, numpy.uint8), self._uop, self.device)
        shape = reading.value_of_shape(self.shape)
        return numpy.frombuffer(found, self.dtype.name).reshape(shape)

    def tolist(self) -> Any:
        """The elements as Python numbers in nested lists."""
        if not self.numel():
            return _empty_lists(self.shape)
        return nest(unpack(self._bytes(), self.dtype), reading.value_of_shape(self.shape))

    def item(self) -> Any:
        """The one element. Raises: ShapeError if there are more or fewer."""
        if self.numel() != 1:
            raise ElementError(
                f"item() of {self.numel()} elements, shape {show(self.shape)}; use tolist()"
            )
        return unpack(self._bytes(), self._uop.dtype)[0]

    def __float__(self) -> Real:
        return float(self.item())

    def __int__(self) -> Whole:
        return int(self.item())

    def __index__(self) -> Whole:
        if not self.dtype.is_int:
            raise DtypeError(f"an index is an integer, not {self.dtype}")
        return int(self.item())

    def __bool__(self) -> Flag:
        if self.numel() != 1:
            raise ElementError(
                f"the truth of {self.numel()} elements, shape {show(self.shape)}, is not one: use"
                f" any() or all()"
            )
        return bool(self.item())

    def __array__(self, dtype: Any = None, copy: Flag | None = None) -> Any:
        if copy is False:
            raise ValueError("the elements of a Tensor cannot be shared with numpy, only copied")
        array = self.numpy()
        return array if dtype is None else array.astype(dtype)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """numpy's functions are of the values: `np.sum(x)` is that of `x.numpy()`, which is not to be written."""
        return called_with_values(function, args, kwargs, Interop)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        """An operator between an array and a Tensor gives a Tensor; numpy's other functions of elements are of the values."""
        is_left = inputs[0] is self
        name = operator_method(ufunc.__name__, is_left)
        if name is None or method != "__call__" or kwargs or len(inputs) != 2:
            return called_with_values(getattr(ufunc, method), inputs, kwargs, Interop)
        return getattr(self, name)(inputs[1 if is_left else 0])

    # -- devices ----------------------------------------------------------------------------------

    def to_(self, device: str | None) -> Self:
        """This Tensor moved to another device, with its gradient."""
        moved = self.to(device)
        self._uop, self.device, self._base = moved._uop, moved.device, None
        if self._grad is not None:
            self._grad.to_(device)
        return self

    def _refuses_as(self, source: TensorBase) -> Self:
        """This copy, which refuses a gradient if `source` does."""
        if source._requires_grad is False:
            self._requires_grad = False
        return self

    def to(self, device: str | None) -> Self:
        """The same values on another device.

        `disk:path` writes them to a file now; from there they are read when they are computed.
        """
        target = canonical_device(device)
        if target == self.device:
            return self.cast(self.dtype)
        moved = type(self)._new(moved_node(shown(self._uop), self.device, target), target)
        return moved._refuses_as(self)

    # -- memory of others -------------------------------------------------------------------------

    def __dlpack_device__(self) -> tuple[int, int]:
        """(1, 0): memory of the CPU, where other devices are copied to."""
        return (dlpack.CPU, 0)

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: Flag | None = None,
    ) -> Any:
        """A capsule of the elements for `from_dlpack` of another library.

        A Tensor on the CPU that has a buffer of its own is shared. What the other side writes is seen
        here, as `from_blob` says; a write to this Tensor makes new memory, as somebody reads the old. Views, Tensors on
        other devices, and results of parameters, which `backward` reads, are copied. Raises: BufferError if that is refused by
        copy=False, or another device is asked for.
        """
        if stream is not None:
            raise BufferError(f"memory of the CPU has no streams; stream={stream!r} was asked for")
        if dl_device not in (None, (dlpack.CPU, 0)):
            raise BufferError(f"can share memory of the CPU, not of DLPack device {dl_device}")
        shared = self._memory_to_share() if copy is not True else None
        if not is_view(self._uop):  # a gradient passes from here on: what it reads is to stay
            shared = None
        if shared is None and copy is False:
            raise BufferError(
                f"{self!r} cannot be shared without a copy: it is a view, not on the CPU, or the result of a parameter"
            )
        versioned = max_version is not None and max_version[0] >= 1
        if shared is not None:
            note_lent(shared)
            return dlpack.export(
                shared.address,
                reading.value_of_shape(self.shape),
                self.dtype,
                shared,
                versioned,
                copied=False,
            )
        memory = bytearray(self._bytes()) or bytearray(1)
        position, owner = dlpack.owned(memory)
        shape = reading.value_of_shape(self.shape)
        return dlpack.export(position, shape, self.dtype, owner, versioned, copied=True)

    def _memory_to_share(self) -> Any:
        """The memory of this Tensor's own buffer on the CPU, computed if need be, or None."""
        if self.device != "CPU" or not self.numel():
            return None
        refuse_read()
        if not is_view(self._uop):
            self.realize()
        node = computed(self._uop)
        while node.op in (Ops.RESHAPE, Ops.DETACH):
            node = node.src[0]
        owns_all = node.op is Ops.BUFFER and node.arg == self.numel()
        return memory_of(node) if owns_all else None

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """For `numpy.asarray` and others: the memory of this Tensor itself, to read.

        It is computed if need be. There is no such attribute, and numpy makes a copy instead, for
        views, Tensors on other devices and types that numpy lacks.
        """
        known = self.dtype in dtypes.all and self.dtype is not dtypes.bfloat16
        shared = self._memory_to_share() if known else None
        if shared is None:
            raise AttributeError("the memory of this Tensor cannot be shared with numpy")
        code = "b" if self.dtype.is_bool else self.dtype.name[0]
        return {
            "version": 3,
            "shape": self.shape,
            "typestr": f"{'<' if self.dtype.itemsize > 1 else '|'}{code}{self.dtype.itemsize}",
            "data": dlpack.readable(shared.address, self.nbytes(), shared),
        }

    @classmethod
    def from_dlpack(cls, x: Any, *, copy: Flag | None = None) -> Self:
        """A Tensor of another library's array: memory of the CPU is shared where it is row-major.

        What the other side writes to shared memory is seen as `from_blob` says.
        Raises: BufferError if copy=False and it cannot be shared; TypeError without `__dlpack__`.
        """
        if not hasattr(x, "__dlpack__"):
            raise TypeError(f"from_dlpack takes an array with __dlpack__, not {describe(x)}")
        try:
            capsule = x.__dlpack__(max_version=dlpack.VERSION)
        except TypeError:  # written before DLPack 1.0
            capsule = x.__dlpack__()
        found = dlpack.consume(capsule)
        if not found.is_row_major:
            if copy is False:
                raise BufferError("elements that are not in row-major order cannot be shared")
            import numpy

            return cls(numpy.from_dlpack(x))
        if copy is True:
            raw = dlpack.bytes_at(found.address, prod(found.shape) * found.dtype.itemsize)
            return cls(raw, dtype=found.dtype).reshape(found.shape)
        return cls._at(found.address, found.shape, found.dtype, found)

    @classmethod
    def from_blob(
        cls,
        ptr: Whole,
        shape: Whole | Shape,
        *,
        device: str | None = None,
        dtype: DType | str | None = None,
    ) -> Self:
        """The elements at an address, which are not copied and must stay there while they are used.

        Others may write there. What is made of this Tensor is computed from what is there at some time between the line that makes it
        and the end of what first asks for its value: a line after a write sees it, and a value that was computed (`realize()`)
        stays. What is written to the Tensor goes to memory of its own.
        """
        if canonical_device(device) != "CPU":
            raise ValueError(f"from_blob takes memory of the CPU, not of {device}")
        sizes, ptr = checked_shape(as_sizes((shape,))), plain_number(ptr)
        if not isinstance(ptr, int):
            raise TypeError(f"an address is an int, not {describe(ptr)}")
        if prod(sizes) and not 0 < ptr < 1 << 64:
            raise ArgumentError(
                f"there is no memory at address {ptr} for from_blob of {show(sizes)}; give where elements"
                f" begin, as array.ctypes.data of numpy or tensor.data_ptr() of torch"
            )
        return cls._at(ptr, sizes, as_dtype(dtypes.default_float if dtype is None else dtype), None)

    @classmethod
    def _at(cls, address: Whole, shape: Shape, dtype: DType, keep: object) -> Self:
        count = prod(shape)
        if not count:
            return cls.zeros(shape, dtype=dtype, device="CPU")
        memory = Device["CPU"].adopt(address, count * dtype.itemsize, keep)
        note_lent(memory)
        node: UOp = new_buffer(dtype, count, "CPU", memory)
        return cls._leaf(reshape_node(node, shape), "CPU", None)

    def __buffer__(self, flags: Whole) -> memoryview:
        """A copy of the elements: `memoryview(t)`, from Python 3.12 on; before, see data()."""
        return memoryview(self.data())

    def _repr_html_(self) -> str:
        """For notebooks: what it is, and the values if they are few and there already."""
        text = f"<code>{html.escape(repr(self))}</code>"
        if not is_view(shown(self._uop)) or self.numel() > _SHOWN_IN_HTML:
            return text
        return f"{text}<pre>{html.escape(str(self.numpy()))}</pre>"


_FORMATS = {
    dtypes.bool: "?", dtypes.int8: "b", dtypes.uint8: "B", dtypes.int16: "h", dtypes.uint16: "H",
    dtypes.int32: "i", dtypes.uint32: "I", dtypes.int64: "q", dtypes.uint64: "Q",
    dtypes.float32: "f", dtypes.float64: "d",
}  # fmt: skip


def _empty_lists(shape: tuple[int, ...]) -> list[Any]:
    return [_empty_lists(shape[1:]) for _ in range(shape[0])] if shape[0] else []
