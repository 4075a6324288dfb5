"""Checkpoints of torch: a zip archive with a pickle that names bytes beside it.

Owns: the names such a pickle may use, and Tensors from storages, offsets and strides. Does not own:
reading pickles (pickles.py). Tensors that share a storage become Tensors of their own.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from proofgrad import Tensor, dtypes
from proofgrad.core.ir.dtypes import DType
from proofgrad.nn.state.archive import LIMIT_BYTES, zip_members
from proofgrad.nn.state.files import FormatError, Source, bytes_of, name_of, shown, tensor_of
from proofgrad.nn.state.pickles import Call, load_pickle, plain

_STORAGES = {
    "DoubleStorage": "float64", "FloatStorage": "float32", "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16", "LongStorage": "int64", "IntStorage": "int32",
    "ShortStorage": "int16", "CharStorage": "int8", "ByteStorage": "uint8", "BoolStorage": "bool",
}  # fmt: skip
# torch's name of a type: ours. Those named alike have one name.
_DTYPES = {
    "float64": "float64", "float32": "float32", "float16": "float16", "bfloat16": "bfloat16",
    "float8_e4m3fn": "fp8e4m3", "float8_e5m2": "fp8e5m2", "float8_e4m3fnuz": "fp8e4m3fnuz",
    "float8_e5m2fnuz": "fp8e5m2fnuz", "int64": "int64", "int32": "int32",
    "int16": "int16", "int8": "int8", "uint64": "uint64", "uint32": "uint32", "uint16": "uint16",
    "uint8": "uint8", "bool": "bool",
}  # fmt: skip


_OLD = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."  # a pickle of torch's magic number, 0x1950a86a20f9469cfc6c
MOST_AXES = 64  # as torch has
MOST_COPIES = 8  # of a byte that is stored, where Tensors lie in another order than their storages
FEW_BYTES = 1 << 26  # that may be copied in any case
_LISTS = (tuple, list)


def torch_load(fn: Source, device: str | None = None, limit_bytes: int = LIMIT_BYTES) -> Any:
    """What `torch.save` wrote to a file, mostly a dict of Tensors; no code of the file is run.

    The file is mapped and read once, to compare it with its checksums; nothing is copied of a Tensor whose elements
    lie in order until it is computed.
    Plain values, dicts, lists, Tensors, parameters, sizes and types are read; all else is refused.
    `limit_bytes` is for what is unpacked, and for what is copied as elements lie in another order.

    Raises: FormatError naming what is not allowed, or for a file from before torch 1.6.

    Example:
        load_state_dict(model, torch_load("model.pt"))
    """
    if bytes(bytes_of(fn)[: len(_OLD)]) == _OLD:
        raise FormatError(
            f"{name_of(fn)} was written by torch before 1.6, or in its format; load it in torch and save it"
            " again: torch.save(torch.load(path), path)"
        )
    # torch.serialization.set_crc32_options(False) leaves 0 in place of each checksum.
    files = zip_members(fn, limit_bytes, may_lack_sums=True)
    pickles = [name for name in files if name.count("/") == 1 and name.endswith("/data.pkl")]
    if len(pickles) != 1:
        raise FormatError(
            f"{name_of(fn)} is no checkpoint of torch 1.6 or later: no data.pkl in its archive"
        )
    folder = pickles[0].removesuffix("data.pkl")
    if bytes(files.get(folder + "byteorder", memoryview(b"little"))) != b"little":
        raise FormatError(f"{name_of(fn)} was written by a machine with big-endian numbers")
    storages = {
        name.removeprefix(folder + "data/"): part
        for name, part in files.items()
        if name.startswith(folder + "data/")
    }
    stored = sum(map(len, storages.values()))
    copies = _Copies(min(limit_bytes, MOST_COPIES * stored + FEW_BYTES))
    return load_pickle(bytes(files[pickles[0]]), _names(device, copies), _finder(storages))


@dataclass(slots=True)
class _Copies:
    """How many bytes may still be copied."""

    left_bytes: int

    def take(self, nbytes: int) -> None:
        """Raises: FormatError."""
        self.left_bytes -= nbytes
        if self.left_bytes < 0:
            raise FormatError(
                "the Tensors of a checkpoint lie in another order than their storages, and need copies"
                f" of more bytes than limit_bytes or {MOST_COPIES} times all storages"
            )


@dataclass(frozen=True, slots=True)
class _StorageType:
    """The class of a storage; None: bytes without a type."""

    dtype: DType | None


@dataclass(frozen=True, slots=True)
class _Storage:
    """The bytes of a storage and their type."""

    data: memoryview
    dtype: DType | None


def _finder(storages: Mapping[str, memoryview]) -> Callable[[Any], _Storage]:
    def storage(pid: Any) -> _Storage:
        match pid:
            case ("storage", _StorageType() as kind, str() as key, _, int()) if key in storages:
                return _Storage(storages[key], kind.dtype)
        raise FormatError(f"a checkpoint names a storage that is not there: {shown(pid)}")

    return storage


def _names(device: str | None, copies: _Copies) -> dict[tuple[str, str], Any]:
    """Everything that the pickle of a checkpoint may name."""

    def rebuild(storage: Any, offset: Any, size: Any, stride: Any, *_: Any) -> Tensor:
        return _tensor(storage, storage.dtype, (offset, size, stride), device, copies)

    def rebuild_typed(
        storage: Any, offset: Any, size: Any, stride: Any, _: Any, __: Any, dtype: Any, *___: Any
    ) -> Tensor:
        return _tensor(storage, dtype, (offset, size, stride), device, copies)

    calls: dict[tuple[str, str], Callable[..., Any]] = {
        ("collections", "OrderedDict"): _ordered,
        ("torch._utils", "_rebuild_tensor"): rebuild,
        ("torch._utils", "_rebuild_tensor_v2"): rebuild,
        ("torch._utils", "_rebuild_tensor_v3"): rebuild_typed,
        ("torch._utils", "_rebuild_parameter"): lambda tensor, *_: tensor,
        ("torch._utils", "_rebuild_parameter_with_state"): lambda tensor, *_: tensor,
        ("torch", "Size"): lambda sizes=(): tuple(sizes),
        ("torch", "device"): _device,
        ("__builtin__", "set"): _set,
        ("builtins", "set"): _set,
        ("_codecs", "encode"): _encoded,
    }
    names: dict[tuple[str, str], Any] = {position: Call(call) for position, call in calls.items()}
    for name, ours in _STORAGES.items():
        names["torch", name] = _StorageType(getattr(dtypes, ours))
    for module in ("torch", "torch.storage"):
        names[module, "UntypedStorage"] = _StorageType(None)
    for name, ours in _DTYPES.items():
        if isinstance(getattr(dtypes, ours, None), DType):
            names["torch", name] = getattr(dtypes, ours)
    return names


def _encoded(text: Any, encoding: Any) -> bytes:
    """How old pickles write bytes."""
    if not isinstance(text, str) or not _is_latin(encoding):
        raise FormatError(f"a pickle encodes text as {shown(encoding)}")
    return text.encode("latin1")


def _is_latin(encoding: Any) -> bool:
    return isinstance(encoding, str) and encoding in ("latin1", "latin-1")


def _device(*name: Any) -> str:
    """The name of a device, and its number where there are several."""
    if not all([type(part) in (str, int) for part in name]):
        raise FormatError(f"a checkpoint names the device {shown(name)}")
    return ":".join(map(str, name))


def _set(items: Any = ()) -> set[Any]:
    return {plain(item) for item in items}


def _ordered(items: Any = ()) -> OrderedDict[Any, Any]:
    return OrderedDict([(plain(key), value) for key, value in items])


def _tensor(
    storage: Any, dtype: Any, position: tuple[Any, Any, Any], device: str | None, copies: _Copies
) -> Tensor:
    """A Tensor of some elements of a storage: `stride[k]` on for each step along axis k."""
    offset, size, stride = position
    if not isinstance(storage, _Storage) or not isinstance(dtype, DType):
        raise FormatError("a checkpoint builds a Tensor of no storage, or of no type known here")
    _check_position(offset, size, stride)
    shape = tuple(size)
    if not prod(shape):
        return Tensor.zeros(*shape, dtype=dtype, device=device)
    # Axes of stride 0 repeat one element: they are expanded, and take no memory.
    kept = tuple([1 if step == 0 else n for n, step in zip(shape, stride, strict=True)])
    last = offset + sum((n - 1) * step for n, step in zip(kept, stride, strict=True))
    count = len(storage.data) // dtype.itemsize
    if last >= count or prod(kept) > count:
        raise FormatError(
            f"a Tensor of shape {shape}, stride {tuple(stride)} and offset {offset} does not fit"
            f" its storage of {count} elements"
        )
    data = _gathered(storage.data, dtype.itemsize, offset, kept, stride, copies)
    whole = tensor_of(data, dtype, kept, device)
    return whole if kept == shape else whole.expand(shape)


def _check_position(offset: Any, size: Any, stride: Any) -> None:
    if type(size) not in _LISTS or type(stride) not in _LISTS or len(size) > MOST_AXES:
        raise FormatError(f"a Tensor needs sizes and strides of up to {MOST_AXES} axes")
    numbers = [offset, *size, *stride]
    whole = all(type(number) is int and 0 <= number < 1 << 62 for number in numbers)
    if not whole or len(size) != len(stride):
        raise FormatError(
            "a Tensor needs sizes and strides of 0 or more:"
            f" {shown(size)}, {shown(stride)}, {shown(offset)}"
        )


def _gathered(
    data: memoryview,
    width: int,
    offset: int,
    shape: tuple[int, ...],
    stride: Sequence[int],
    copies: _Copies,
) -> memoryview:
    """The elements in row-major order: a part of `data` if they lie so, else a copy."""
    expected, in_order = 1, True
    for n, step in zip(reversed(shape), reversed(stride), strict=True):
        in_order = in_order and (n == 1 or step == expected)
        expected *= n
    if in_order:
        return data[offset * width : (offset + prod(shape)) * width]
    import numpy

    copies.take(prod(shape) * width)
    line = numpy.frombuffer(data[: len(data) // width * width], f"u{width}")[offset:]
    steps = [step * width for step in stride]
    view = numpy.lib.stride_tricks.as_strided(line, shape, steps, writeable=False)
    return memoryview(view.tobytes())
