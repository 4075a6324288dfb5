"""npz files: arrays of numpy by name.

Owns: loading without pickles, saving. Types that numpy lacks are refused.
"""

from __future__ import annotations

import io
import os
import struct
import zipfile
import zlib
from collections.abc import Mapping
from typing import Any

from proofgrad import DtypeError, Tensor, dtypes
from proofgrad.nn.state.archive import LIMIT_BYTES, zip_members
from proofgrad.nn.state.files import FormatError, replacing, shown

# What numpy and the standard library raise at broken files; RuntimeError: encrypted files, compression
# that there is not, numbers nested too deep; MemoryError: a header that
# claims more than there is.
_BROKEN = (
    zipfile.BadZipFile, zlib.error, struct.error, ArithmeticError, EOFError, LookupError, MemoryError,
    OSError, RuntimeError, SyntaxError, TypeError, ValueError,
)  # fmt: skip


def npz_load(
    fn: str | os.PathLike[str], device: str | None = None, limit_bytes: int = LIMIT_BYTES
) -> dict[str, Tensor]:
    """The arrays of an npz file by name.

    Raises: FormatError for a broken file, pickled objects, or more than `limit_bytes`; DtypeError for
    arrays of a type that Tensors lack.
    """
    try:
        files = zip_members(fn, limit_bytes, check=_any_name)
        size = sum(map(len, files.values()))
        if size > limit_bytes:
            raise FormatError(f"{fn} unpacks to {size:,} bytes; the limit is {limit_bytes:,}")
        named = {name.removesuffix(".npy"): name for name in files}
        if len(named) != len(files):
            raise FormatError(f"{fn} has two arrays of one name")
        return {name: _tensor(fn, name, _array(files.pop(named[name])), device) for name in named}
    except _BROKEN as error:
        if isinstance(error, (FileNotFoundError, FormatError, DtypeError)):
            raise
        raise FormatError(f"{fn} is no npz file of numbers: {shown(error)}") from None


def _any_name(name: str) -> None:
    """Names here are keys of a dict, and no paths."""


def _array(data: memoryview) -> Any:
    """What a file of numpy holds. Raises: ValueError, for objects and for what is no array."""
    import numpy

    return numpy.lib.format.read_array(io.BytesIO(data), allow_pickle=False)


def _tensor(fn: object, name: str, array: Any, device: str | None) -> Tensor:
    try:
        return Tensor(array, device)
    except DtypeError as error:
        raise DtypeError(f"{name!r} of {fn}: {error}") from None


def npz_save(tensors: Mapping[str, Tensor], fn: str | os.PathLike[str]) -> None:
    """Write the Tensors to an npz file, which replaces one that is there in one step.

    Raises: DtypeError for types that numpy lacks: bfloat16, fp8.
    """
    import numpy

    for name, tensor in tensors.items():
        if dtypes.is_float(tensor.dtype) and not hasattr(numpy, tensor.dtype.name):
            raise DtypeError(f"cannot save {name!r}: npz has no {tensor.dtype}; use safe_save")
    arrays = {name: tensor.numpy() for name, tensor in tensors.items()}
    with replacing(fn) as aside, open(aside, "wb") as file:
        numpy.savez(file, **arrays)
