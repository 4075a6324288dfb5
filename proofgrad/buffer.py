"""Memory of a device by hand: bytes in, bytes out.

Owns: `Buffer`. Does not own: the memory of Tensors, which is given and taken as they need it (core/tensor/runtime).
"""

from __future__ import annotations

from typing import Any

from proofgrad import Device
from proofgrad.core.ir.dtypes import DType, dtypes
from proofgrad.core.tensor.data.promotion import as_dtype


class Buffer:
    """`size` elements on a device, which has them once `allocate` was called.

    `initial_value`: their bytes. A `view` is a part of the same memory.

    Example:
        Buffer("CPU", 2, dtypes.int32).allocate().copyin(memoryview(bytes(8)))
    """

    def __init__(
        self,
        device: str,
        size: int,
        dtype: DType | str,
        opaque: Any = None,
        *,
        initial_value: bytes | None = None,
        preallocate: bool = False,
    ) -> None:
        self.device, self.size, self.dtype = Device.canonical(device), size, as_dtype(dtype)
        if size < 0:
            raise ValueError(f"a buffer has 0 elements or more, not {size}")
        self.base, self.offset = self, 0
        self._handle: Any = opaque
        if initial_value is not None:
            self.allocate().copyin(memoryview(initial_value))
        elif preallocate:
            self.allocate()

    def __repr__(self) -> str:
        return f"<Buffer of {self.size} {self.dtype} on {self.device}, {'' if self.is_allocated() else 'not '}allocated>"

    @property
    def nbytes(self) -> int:
        """How many bytes it has."""
        return self.size * self.dtype.itemsize

    def is_allocated(self) -> bool:
        """Is there memory behind it?"""
        return self.base._handle is not None

    def allocate(self) -> Buffer:
        """Ask the device for memory; what is in it is not known. Raises: RuntimeError if there is some."""
        if self.is_allocated():
            raise RuntimeError(
                f"{self} has its memory; ensure_allocated() asks only where there is none"
            )
        self.base._handle = Device[self.device].alloc(max(1, self.base.nbytes))
        return self

    def ensure_allocated(self) -> Buffer:
        """Ask for memory where there is none."""
        return self if self.is_allocated() else self.allocate()

    def deallocate(self) -> None:
        """Give the memory back. Raises: RuntimeError if there is none."""
        self._memory()
        self.base._handle = None

    def copyin(self, mv: Any) -> Buffer:
        """Bytes from the host, as many as it has. Raises: ValueError for another number, RuntimeError without memory."""
        data = memoryview(mv).cast("B")
        if len(data) != self.nbytes:
            raise ValueError(f"{len(data)} bytes for {self}, which has {self.nbytes}")
        handle = self._memory()
        if self.base is not self or self.nbytes != self.base.nbytes:
            whole = bytearray(self.base.as_memoryview())
            whole[self.offset : self.offset + self.nbytes] = data
            data = memoryview(whole)
        if len(data):
            Device[self.device].copyin(handle, data)
        return self

    def copyout(self, mv: Any) -> Any:
        """Bytes to the host, as many as it has. Raises: ValueError for another number, RuntimeError without memory."""
        into = memoryview(mv).cast("B")
        if len(into) != self.nbytes:
            raise ValueError(f"{len(into)} bytes from {self}, which has {self.nbytes}")
        into[:] = self.as_memoryview()
        return mv

    def as_memoryview(self) -> memoryview:
        """A copy of its bytes. Raises: RuntimeError without memory."""
        whole = memoryview(bytearray(self.base.nbytes))
        handle, device = self._memory(), Device[self.device]
        if len(whole):
            device.synchronize()
            device.copyout(whole, handle)
        return whole[self.offset : self.offset + self.nbytes]

    as_buffer = as_memoryview  # its name in older programs

    def numpy(self) -> Any:
        """A copy of its elements. Raises: RuntimeError without memory."""
        import numpy

        if self.dtype.is_code or self.dtype is dtypes.bfloat16:
            raise ValueError(f"numpy has no {self.dtype}; as_memoryview() gives the bytes")
        return numpy.frombuffer(self.as_memoryview(), self.dtype.name)

    def copy_from(self, src: Buffer) -> Buffer:
        """The bytes of another one, of any device. Raises: as `copyin`."""
        return self.copyin(src.as_memoryview())

    def view(self, size: int, dtype: DType | str, offset: int) -> Buffer:
        """So many elements of it, from a byte on. Raises: ValueError if they are not all in it."""
        part = Buffer(self.device, size, dtype)
        if offset < 0 or offset + part.nbytes > self.nbytes:
            raise ValueError(f"{part.nbytes} bytes from {offset} on are not within {self}")
        part.base, part.offset = self.base, self.offset + offset
        return part

    def _memory(self) -> Any:
        if not self.is_allocated():
            raise RuntimeError(f"{self}: call allocate() first")
        return self.base._handle
