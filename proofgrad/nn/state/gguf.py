"""GGUF files: settings of a model by name, then its Tensors, many of them quantised.

Owns: reading the header of a file that may lie, and finding the parts of a split one. Does not own: what the types
mean (ggml.py). Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import re
import struct
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

from proofgrad import DtypeError, Tensor, dtypes
from proofgrad.nn.state.files import (
    FormatError,
    Source,
    bytes_of,
    name_of,
    named_file,
    shown,
    tensor_of,
)
from proofgrad.nn.state.ggml import ggml_data_to_tensor, nbytes_of

# The types of settings: the format of one number each; text is 8, a list 9.
_NUMBERS = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "?",
    10: "Q",
    11: "q",
    12: "d",
}
_TEXT, _LIST = 8, 9
_MOST_AXES, _MOST_NESTED = 4, 8


class _Entry(NamedTuple):
    name: str
    shape: tuple[int, ...]
    ggml_type: int
    offset: int


def gguf_load(fn: Source) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The settings of a GGUF file, and its Tensors by name; of a split file's first part, those of all parts.

    A file is mapped, and a Tensor is read and unpacked when it is computed: `realize` those that are computed often.
    Quantised ones become float32. Nothing that a file says is run.

    Raises: FormatError for a file that is not well formed, DtypeError for a ggml type that is not read here.

    Example:
        settings, tensors = gguf_load("model-Q4_K_M.gguf")
    """
    settings, found = _load_one(fn)
    count = settings.get("split.count", 0)
    if not isinstance(count, int) or isinstance(count, bool) or count <= 1:
        return settings, found
    for part in _other_parts(fn, count):
        for name, tensor in _load_one(part)[1].items():
            if name in found:
                raise FormatError(f"{part} has the Tensor {shown(name)}, which another part has")
            found[name] = tensor
    return settings, found


def _load_one(fn: Source) -> tuple[dict[str, Any], dict[str, Tensor]]:
    fn = named_file(fn)
    data = bytes_of(fn)
    reader = _Reader(data, name_of(fn))
    settings, entries = _header(reader)
    start = _data_start(reader, settings)
    tensors: dict[str, Tensor] = {}
    for entry in entries:
        if entry.name in tensors:
            raise FormatError(f"{reader.file} names the Tensor {shown(entry.name)} twice")
        tensors[entry.name] = _tensor(fn, reader, start, entry)
    return settings, tensors


def _tensor(fn: Source, reader: _Reader, start: int, entry: _Entry) -> Tensor:
    elements = prod(entry.shape)
    try:
        nbytes = nbytes_of(elements, entry.ggml_type)
        nbytes_of(
            entry.shape[-1] if entry.shape else 1, entry.ggml_type
        )  # rows are of whole blocks
    except ValueError as error:
        kind = DtypeError if isinstance(error, DtypeError) else FormatError
        raise kind(f"the Tensor {shown(entry.name)} of {reader.file}: {error}") from None
    begin = start + entry.offset
    if begin + nbytes > len(reader.data):
        raise FormatError(
            f"{reader.file} ends before its Tensor {shown(entry.name)}, {nbytes} bytes from {begin} on"
        )
    part = reader.data[begin : begin + nbytes]
    raw = fn[begin : begin + nbytes] if isinstance(fn, Tensor) else _mapped(part)
    return ggml_data_to_tensor(raw, elements, entry.ggml_type).reshape(entry.shape)


def _mapped(part: memoryview) -> Tensor:
    return tensor_of(part, dtypes.uint8, (len(part),))


class _Reader:
    """The bytes of a file from the front, never more than there are."""

    def __init__(self, data: memoryview, file: str) -> None:
        self.data, self.file, self.position = data, file, 0

    def take(self, size: int) -> memoryview:
        """The next bytes. Raises: FormatError if there are fewer."""
        if size > len(self.data) - self.position:
            raise FormatError(f"{self.file} ends within its header, at byte {len(self.data)}")
        self.position += size
        return self.data[self.position - size : self.position]

    def numbers(self, code: str, count: int) -> tuple[Any, ...]:
        """So many numbers of one format."""
        return struct.unpack(f"<{count}{code}", self.take(count * struct.calcsize(f"<{code}")))

    def number(self, code: str) -> Any:
        """One number."""
        return self.numbers(code, 1)[0]

    def text(self) -> str:
        """A length and as many bytes of UTF-8."""
        raw = bytes(self.take(self.number("Q")))
        try:
            return raw.decode()
        except UnicodeDecodeError:
            raise FormatError(f"{self.file} has text that is no UTF-8: {shown(raw)}") from None

    def value(self, kind: int, depth: int = 0) -> Any:
        """The value of a setting. Raises: FormatError for a type that there is not, or too deep a list."""
        if kind in _NUMBERS:
            return self.number(_NUMBERS[kind])
        if kind == _TEXT:
            return self.text()
        if kind != _LIST or depth == _MOST_NESTED:
            raise FormatError(f"{self.file} has a setting of type {kind}, {depth} lists deep")
        inner, count = self.number("I"), self.number("Q")
        if inner in _NUMBERS:
            return list(self.numbers(_NUMBERS[inner], count))
        self.leaves_room(count, 8 if inner == _TEXT else 12)
        return [self.value(inner, depth + 1) for _ in range(count)]

    def leaves_room(self, count: int, least: int) -> None:
        """Raises: FormatError if so many things of `least` bytes or more cannot follow."""
        if count * least > len(self.data) - self.position:
            raise FormatError(f"{self.file} says that {count} things follow where it ends before")


def _header(reader: _Reader) -> tuple[dict[str, Any], list[_Entry]]:
    if len(reader.data) < 24 or bytes(reader.take(4)) != b"GGUF":
        raise FormatError(f"{reader.file} is no GGUF file: it does not start with GGUF")
    version = reader.number("I")
    if version not in (2, 3):
        order = " (big endian)" if version in (2 << 24, 3 << 24) else ""
        raise FormatError(f"{reader.file} is GGUF of version {version}{order}; read are 2 and 3")
    tensors, count = reader.numbers("Q", 2)
    settings: dict[str, Any] = {}
    reader.leaves_room(count, 13)
    for _ in range(count):
        name, kind = reader.text(), reader.number("I")
        if name in settings:
            raise FormatError(f"{reader.file} has the setting {shown(name)} twice")
        settings[name] = reader.value(kind)
    reader.leaves_room(tensors, 24)
    return settings, [_entry(reader) for _ in range(tensors)]


def _entry(reader: _Reader) -> _Entry:
    """The name, shape, type and offset of a Tensor; the file has the fastest axis first."""
    name, axes = reader.text(), reader.number("I")
    if axes > _MOST_AXES:
        raise FormatError(
            f"{reader.file} has a Tensor {shown(name)} of {axes} axes; {_MOST_AXES} are most"
        )
    shape = tuple(reversed(reader.numbers("Q", axes)))
    return _Entry(name, shape, reader.number("I"), reader.number("Q"))


def _data_start(reader: _Reader, settings: dict[str, Any]) -> int:
    """Where the Tensors start: at the next multiple of the alignment."""
    alignment = settings.get("general.alignment", 32)
    if type(alignment) is not int or alignment < 1 or alignment & (alignment - 1):
        raise FormatError(
            f"{reader.file} has general.alignment {shown(alignment)}: no power of two"
        )
    return -(-reader.position // alignment) * alignment


def _other_parts(fn: Source, count: int) -> list[Path]:
    """The parts of a split file but its first. Raises: FormatError where their names cannot be told."""
    named = named_file(fn)
    if isinstance(named, Tensor):
        raise FormatError(
            f"these bytes are the first of {count} files: give the path, not a Tensor"
        )
    path = Path(named)
    match = re.fullmatch(r"(.*)-00001-of-(\d{5})\.gguf", path.name)
    if match is None or int(match[2]) != count:
        raise FormatError(
            f"{path} is the first of {count} files, and its name does not end in -00001-of-{count:05}.gguf"
        )
    return [path.with_name(f"{match[1]}-{k:05}-of-{count:05}.gguf") for k in range(2, count + 1)]
