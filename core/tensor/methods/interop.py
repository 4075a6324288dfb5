"""Tensors beside other libraries: shared memory, memory at an address, notebooks.

Owns: when memory is shared and when it is copied. Does not own: the structures of DLPack (dlpack.py),
reading values out (tensor.py).
"""

from __future__ import annotations

import html
from math import prod
from typing import Any, ClassVar, Self

from proofgrad.core.ir.dtypes import DType, dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.shapes import Shape
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.data import dlpack
from proofgrad.core.tensor.data.promotion import as_dtype
from proofgrad.core.tensor.methods.base import describe
from proofgrad.core.tensor.methods.linalg import LinearAlgebra
from proofgrad.core.tensor.methods.movement import as_sizes, checked_shape, reshape_node
from proofgrad.core.tensor.methods.operands import Flag, Whole
from proofgrad.core.tensor.runtime import realize as machine
from proofgrad.core.tensor.runtime.device import Device, canonical_device
from proofgrad.core.tensor.runtime.recording import refuse_read

_SHOWN_IN_HTML = 100  # elements


class Interop(LinearAlgebra):
    """Exchange with numpy, torch, jax and others."""

    __slots__ = ()
    __array_priority__: ClassVar[Whole] = 1000  # older numpy asks who of two operands is in charge

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
        here; a write to this Tensor makes new memory, as somebody reads the old. Views and Tensors on
        other devices are copied. Raises: BufferError if that is refused by
        copy=False, or another device is asked for.
        """
        if stream is not None:
            raise BufferError(f"memory of the CPU has no streams; stream={stream!r} was asked for")
        if dl_device not in (None, (dlpack.CPU, 0)):
            raise BufferError(f"can share memory of the CPU, not of DLPack device {dl_device}")
        shared = self._memory_to_share() if copy is not True else None
        if shared is None and copy is False:
            raise BufferError(
                f"{self!r} cannot be shared without a copy: it is a view, or not on the CPU"
            )
        versioned = max_version is not None and max_version[0] >= 1
        if shared is not None:
            return dlpack.export(
                shared.address, self.shape, self.dtype, shared, versioned, copied=False
            )
        memory = bytearray(machine.read(self._uop, self.device)) or bytearray(1)
        place, owner = dlpack.owned(memory)
        return dlpack.export(place, self.shape, self.dtype, owner, versioned, copied=True)

    def _memory_to_share(self) -> Any:
        """The memory of this Tensor's own buffer on the CPU, computed if need be, or None."""
        if self.device != "CPU" or not self.numel():
            return None
        refuse_read()
        if machine.is_view(self.uop):
            node = self.uop
        else:
            (node,) = machine.realize([self._uop], self.device)
        while node.op in (Ops.RESHAPE, Ops.DETACH):
            node = node.src[0]
        owns_all = node.op is Ops.BUFFER and node.arg == self.numel()
        return machine.memory_of(node) if owns_all else None

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
        """The elements at an address, which are not copied and must stay there while they are used."""
        if canonical_device(device) != "CPU":
            raise ValueError(f"from_blob takes memory of the CPU, not of {device}")
        sizes = checked_shape(as_sizes((shape,)))
        return cls._at(ptr, sizes, as_dtype(dtypes.default_float if dtype is None else dtype), None)

    @classmethod
    def _at(cls, address: Whole, shape: Shape, dtype: DType, keep: object) -> Self:
        count = prod(shape)
        if not count:
            return cls.zeros(shape, dtype=dtype, device="CPU")
        memory = Device["CPU"].adopt(address, count * dtype.itemsize, keep)
        node: UOp = machine.new_buffer(dtype, count, "CPU", memory)
        return cls._leaf(reshape_node(node, shape), "CPU", None)

    def __buffer__(self, flags: Whole) -> memoryview:
        """A copy of the elements: `memoryview(t)`, from Python 3.12 on; before, see data()."""
        return memoryview(self.data())  # type: ignore[attr-defined]

    def _repr_html_(self) -> str:
        """For notebooks: what it is, and the values if they are few and there already."""
        text = f"<code>{html.escape(repr(self))}</code>"
        if not machine.is_view(self.uop) or self.numel() > _SHOWN_IN_HTML:
            return text
        return f"{text}<pre>{html.escape(str(self.numpy()))}</pre>"  # type: ignore[attr-defined]
