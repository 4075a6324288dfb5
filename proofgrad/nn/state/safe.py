"""safetensors files: a header of names, types, shapes and positions, then the bytes.

Owns: the types of the format, loading by memory map, saving. Does not own: the check of headers,
which the `safetensors` package does (offsets that overlap, leave holes or end, sizes that do not
fit, unknown types, bytes left over). Format: https://github.com/huggingface/safetensors
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping
from math import prod
from typing import Any

from proofgrad import DtypeError, Tensor, dtypes
from proofgrad.core.ir.dtypes import DType
from proofgrad.core.ir.shapes import sizes
from proofgrad.nn.state.files import (
    FormatError,
    Source,
    bytes_of,
    name_of,
    named_file,
    replacing,
    shown,
    tensor_of,
)

# The format's name of each type, ours, and the one that the package takes.
_TYPES = (
    ("BOOL", "bool", "bool"),
    ("I8", "int8", "int8"),
    ("U8", "uint8", "uint8"),
    ("I16", "int16", "int16"),
    ("U16", "uint16", "uint16"),
    ("I32", "int32", "int32"),
    ("U32", "uint32", "uint32"),
    ("I64", "int64", "int64"),
    ("U64", "uint64", "uint64"),
    ("F8_E4M3", "fp8e4m3", "float8_e4m3fn"),
    ("F8_E5M2", "fp8e5m2", "float8_e5m2"),
    ("F8_E4M3FNUZ", "fp8e4m3fnuz", "float8_e4m3fnuz"),
    ("F8_E5M2FNUZ", "fp8e5m2fnuz", "float8_e5m2fnuz"),
    ("F16", "float16", "float16"),
    ("BF16", "bfloat16", "bfloat16"),
    ("F32", "float32", "float32"),
    ("F64", "float64", "float64"),
)
_TEXTS = "__metadata__"
# What programs that read such files themselves import.
safe_dtypes: dict[str, DType] = {code: getattr(dtypes, name) for code, name, _ in _TYPES}
inverse_safe_dtypes: dict[DType, str] = {dtype: code for code, dtype in safe_dtypes.items()}


def safe_load(fn: Source, device: str | None = None) -> dict[str, Tensor]:
    """The Tensors of a safetensors file, or of its bytes, by name.

    The file is mapped: a Tensor is read when it is first computed.

    Raises: FormatError for a file that is not well formed, DtypeError for a type not known here.

    Example:
        load_state_dict(model, safe_load("model.safetensors"))
    """
    data, start, header = _parsed(fn)
    body = data[start:]
    return {
        name: tensor_of(
            body[slice(*entry["data_offsets"])],
            _dtype(name, entry["dtype"]),
            tuple(entry["shape"]),
            device,
        )
        for name, entry in header.items()
        if name != _TEXTS
    }


def safe_load_metadata(fn: Source) -> tuple[Tensor, int, dict[str, Any]]:
    """The file as uint8, where its data starts, and its header, with "__metadata__" if there is.

    Raises: FormatError.
    """
    data, start, header = _parsed(fn)
    return tensor_of(data, dtypes.uint8, (len(data),)), start, header


def safe_save(
    tensors: Mapping[str, Tensor],
    fn: str | os.PathLike[str],
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Write the Tensors to a safetensors file, which replaces one that is there in one step.

    Raises: DtypeError for a type that the format lacks, TypeError for names and metadata that are not text, ValueError for a Tensor
        that is named "__metadata__"; OSError, and
        then a file that was there is as it was.

    Example:
        safe_save(get_state_dict(model), "model.safetensors", metadata={"epoch": "3"})
    """
    import numpy
    import safetensors

    for key, value in (metadata or {}).items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise TypeError(f"metadata is text by text, not {key!r}: {value!r}")
    if not isinstance(tensors, Mapping):
        raise TypeError(
            f"safe_save takes Tensors by name, not {type(tensors).__name__}; see get_state_dict"
        )
    for name, tensor in tensors.items():
        if not isinstance(name, str):
            raise TypeError(f"names of Tensors in a file are text, not {name!r}")
        if name == _TEXTS:
            raise ValueError(f"no Tensor is named {name!r}: there the format has its metadata")
        if not isinstance(tensor, Tensor):
            raise TypeError(f"safe_save takes Tensors, and {name!r} is {tensor!r}")
    if tensors:
        Tensor.realize(*tensors.values())
    specs, held = {}, []
    for name, tensor in tensors.items():
        raw = numpy.frombuffer(tensor._bytes_seen() or b"\0", numpy.uint8)
        held.append(raw)
        shape = sizes().value_of_shape(tensor.shape)
        specs[name] = safetensors.TensorSpec(
            dtype=_package_name(name, tensor.dtype),
            shape=shape,
            data_ptr=raw.ctypes.data,
            data_len=prod(shape) * tensor.dtype.itemsize,
        )
    with replacing(fn) as aside:
        aside.touch()  # a folder that is missing or forbidden is the error of Python for it
        try:
            safetensors.serialize_file(specs, aside, metadata=dict(metadata) if metadata else None)
        except safetensors.SafetensorError as error:
            raise OSError(f"{os.fspath(fn)} could not be written: {error}") from None


def _parsed(fn: Source) -> tuple[memoryview, int, dict[str, Any]]:
    """The bytes, where the data starts, the header, all of which the package found well formed."""
    import safetensors

    fn = named_file(fn)
    data = bytes_of(fn)
    try:
        if isinstance(fn, Tensor):
            safetensors.deserialize(bytes(data))  # type: ignore[no-untyped-call]
        else:
            with safetensors.safe_open(fn, "np"):
                pass
    except safetensors.SafetensorError as error:
        raise FormatError(f"{name_of(fn)} is no safetensors file: {error}") from None
    size = int.from_bytes(data[:8], "little")
    return data, 8 + size, json.loads(bytes(data[8 : 8 + size]), object_pairs_hook=_unique)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object. Raises: FormatError for one that has a key twice, which JSON lets pass."""
    result = dict(pairs)
    if len(result) != len(pairs):
        counts = Counter([name for name, _ in pairs])
        twice = sorted([name for name, count in counts.items() if count > 1])
        raise FormatError(f"the header of a safetensors file names {shown(twice)} twice")
    return result


def _dtype(name: str, code: str) -> DType:
    found = safe_dtypes.get(code)
    if found is None:
        raise DtypeError(f"the Tensor {shown(name)} has the type {code}, which proofgrad lacks")
    return found


def _package_name(name: str, dtype: DType) -> str:
    for _, ours, package_name in _TYPES:
        if ours == dtype.name:
            return package_name
    raise DtypeError(f"cannot save {name!r}: safetensors has no {dtype}; cast it first")
