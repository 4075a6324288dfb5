"""A Tensor of bytes as a file to read.

Owns: `TensorIO`. Does not own: files as Tensors (core/tensor/methods/disk.py).
"""

from __future__ import annotations

import io
from typing import Any

from proofgrad import Tensor, dtypes


class TensorIO(io.RawIOBase):
    """A binary file, to read, over a Tensor of uint8 and one axis, for readers of formats.

    A Tensor on disk is read in the parts that are asked for; another one is computed once, when first read.
    Raises: ValueError for another Tensor.

    Example:
        tarfile.open(fileobj=TensorIO(Tensor(Path("data.tar"))))
    """

    def __init__(self, tensor: Tensor) -> None:
        if tensor.ndim != 1 or tensor.dtype is not dtypes.uint8:
            raise ValueError(
                f"a file is a Tensor of uint8 and 1 axis, not {tensor.dtype} of shape {tensor.shape}"
            )
        self._tensor, self._position = tensor, 0
        self._held: Any = None  # the bytes of a Tensor that is not on disk, once they are asked for

    def readable(self) -> bool:
        """Yes."""
        return True

    def seekable(self) -> bool:
        """Yes."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill `buffer` from the position on, as far as there are bytes."""
        wanted = memoryview(buffer).cast("B")
        end = min(self._position + len(wanted), len(self._tensor))
        count = max(0, end - self._position)
        wanted[:count] = self._between(self._position, self._position + count)
        self._position += count
        return count

    def write(self, data: Any) -> int:
        """Raises: UnsupportedOperation: Tensors are written by assign."""
        raise io.UnsupportedOperation("this file is to be read; Tensors are written by assign")

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to a position counted from the start, the position or the end.

        Raises: ValueError for a position before the start.
        """
        starts = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: len(self._tensor)}
        if whence not in starts:
            raise ValueError(f"whence is 0, 1 or 2, not {whence}")
        position = starts[whence] + offset
        if position < 0:
            raise ValueError(f"cannot seek to byte {position}")
        self._position = position
        return position

    def tell(self) -> int:
        """The position."""
        return self._position

    def _between(self, begin: int, end: int) -> Any:
        if begin == end:
            return b""
        if self._tensor.device.startswith("DISK:"):
            return self._tensor[begin:end].data()
        if self._held is None:
            self._held = self._tensor.data()
        return self._held[begin:end]
