"""Bytes of files as Tensors, and files that are written whole or not at all.

Owns: mapping a file into memory, the Tensor of a part of it, replacing a file in one step.
"""

from __future__ import annotations

import contextlib
import functools
import os
import reprlib
import secrets
from collections.abc import Callable, Iterator
from math import prod
from pathlib import Path
from typing import Any, TypeVar

from proofgrad import Tensor, dtypes
from proofgrad.core.ir.dtypes import DType
from proofgrad.core.tensor.methods.disk import file_behind
from proofgrad.core.tensor.runtime.device import canonical_device
from proofgrad.core.tensor.runtime.memory import host_buffer

T = TypeVar("T")
Source = Tensor | str | os.PathLike[str]


class FormatError(ValueError):
    """A file that is not what it was read as, or asks for what is not allowed."""


_SHORT = reprlib.Repr()
_SHORT.maxlevel, _SHORT.maxstring, _SHORT.maxother, _SHORT.maxlong = 2, 60, 60, 40


def shown(value: object) -> str:
    """The beginning of what a file says, for messages: parts may hold each other many times over."""
    return _SHORT.repr(value)


def accept_filename(func: Callable[[Tensor], T]) -> Callable[[Source], T]:
    """A function of a file as a Tensor, which takes its path, too."""

    @functools.wraps(func)
    def taking_paths(fn: Source) -> T:
        return func(fn if isinstance(fn, Tensor) else Tensor(Path(fn)))

    return taking_paths


def bytes_of(source: Source) -> memoryview:
    """The bytes of a file, mapped and not read yet; or of a flat uint8 Tensor.

    Raises: FileNotFoundError, ValueError for another Tensor.
    """
    source = named_file(source)
    if isinstance(source, Tensor):
        if source.ndim != 1 or source.dtype.name != "uint8":
            raise ValueError(
                f"the bytes of a file are a Tensor of uint8 and 1 axis, not {source.dtype} of"
                f" shape {source.shape}"
            )
        return memoryview(raw_bytes(source))
    import numpy

    if os.path.getsize(source) == 0:
        return memoryview(b"")
    mapped: Any = numpy.memmap(source, numpy.uint8, mode="r")
    return memoryview(mapped)


def named_file(source: Source) -> Source:
    """The path where a Tensor is all of a file, as Tensor(Path(...)) is; else what is given."""
    if isinstance(source, Tensor) and source.ndim == 1 and source.dtype is dtypes.uint8:
        return file_behind(source.uop) or source
    return source


def raw_bytes(tensor: Tensor) -> bytearray:
    """The elements of a Tensor in row-major order, of any type."""
    return tensor._bytes()


def name_of(source: Source) -> str:
    """The file's name for messages."""
    return "these bytes" if isinstance(source, Tensor) else os.fspath(source)


def tensor_of(
    data: memoryview, dtype: DType, shape: tuple[int, ...], device: str | None = None
) -> Tensor:
    """Row-major bytes as a Tensor. Nothing is copied until the Tensor is computed."""
    if len(data) != prod(shape) * dtype.itemsize:
        raise FormatError(f"{len(data)} bytes for a {dtype} of shape {shape}")
    if not len(data):
        return Tensor.zeros(*shape, dtype=dtype, device=device)
    where = canonical_device(device)
    return Tensor(host_buffer(data, dtype, where), where).reshape(shape)  # type: ignore[arg-type]


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A new name beside `path`; what is written there becomes `path` if the block ends well."""
    target = Path(path)
    aside = target.with_name(f".{target.name}.{secrets.token_hex(6)}.tmp")
    try:
        yield aside
        with open(aside, "rb") as written:
            os.fsync(written.fileno())
        os.replace(aside, target)
    finally:
        aside.unlink(missing_ok=True)
