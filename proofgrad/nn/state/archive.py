"""Files inside of zip and tar archives, as Tensors of bytes.

Owns: reading archives that may be hostile: names that leave the folder, sizes that unpack to more
than is wanted. Does not own: the bytes of an entry of a zip archive (zip_entries.py). Nothing is written to
disk; links and folders are left out.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import struct
import tarfile
import zipfile
import zlib
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import PurePosixPath, PureWindowsPath
from typing import IO, cast

from proofgrad import Tensor, dtypes
from proofgrad.nn.state.files import (
    FormatError,
    Source,
    bytes_of,
    name_of,
    named_file,
    shown,
    tensor_of,
)
from proofgrad.nn.state.zip_entries import check_sum, entry_bytes

LIMIT_BYTES = 1 << 34  # of what is unpacked from one archive, unless asked otherwise
# What the readers of the standard library raise at broken archives; RuntimeError: encrypted files, and
# NotImplementedError, which is one: compression that there is not.
_BROKEN = (
    tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, EOFError,
    OSError, ValueError, LookupError, OverflowError, RuntimeError, MemoryError,
)  # fmt: skip


def zip_extract(fn: Source, limit_bytes: int = LIMIT_BYTES) -> dict[str, Tensor]:
    """The files of a zip archive by name. Those that are not compressed stay mapped.

    All are read once, to compare them with their checksums.

    Raises: FormatError for a broken archive, a name that leaves it, more than `limit_bytes`.
    """
    return {name: _flat(part) for name, part in zip_members(fn, limit_bytes).items()}


def tar_extract(fn: Source, limit_bytes: int = LIMIT_BYTES) -> dict[str, Tensor]:
    """The files of a tar archive, which may be compressed, by name. Those of one that is not stay mapped.

    Raises: FormatError for a broken archive, a name that leaves it, more than `limit_bytes`.
    """
    found: dict[str, Tensor] = {}
    unpacked = 0
    fn = named_file(fn)
    try:
        with (
            _opened(fn) as file,
            _Bounded(_unpacked(file), fn, limit_bytes) as plain,
            tarfile.open(fileobj=plain, mode="r:") as archive,
        ):
            for member in archive:
                check_name(member.name)
                unpacked += max(0, member.size)
                _check_limit(fn, unpacked, limit_bytes)
                if member.isreg() and not member.issparse() and plain.holds(file):
                    found[member.name] = _flat(_part_of(bytes_of(fn), member))
                    continue
                content = archive.extractfile(member) if member.isreg() else None
                if content is not None:
                    found[member.name] = _flat(memoryview(content.read()))
    except (FormatError, FileNotFoundError):
        raise
    except _BROKEN as error:
        raise FormatError(
            f"{name_of(fn)} is no tar archive that can be read: {shown(error)}"
        ) from None
    return found


class _Bounded(io.RawIOBase):
    """A file of which nobody reads more at once than is wanted of all of it: long names are in memory."""

    def __init__(self, file: IO[bytes], fn: Source, limit_bytes: int) -> None:
        self._file, self._fn, self._limit_bytes = file, fn, limit_bytes

    def holds(self, file: IO[bytes]) -> bool:
        """Is this that file itself, not unpacked?"""
        return self._file is file

    def read(self, size: int = -1) -> bytes:
        _check_limit(self._fn, size, max(self._limit_bytes, tarfile.RECORDSIZE))
        return self._file.read(size)

    def seek(self, position: int, whence: int = 0) -> int:
        return self._file.seek(position, whence)

    def tell(self) -> int:
        return self._file.tell()


def _part_of(data: memoryview, member: tarfile.TarInfo) -> memoryview:
    """The bytes of a file in an archive that is not compressed. Raises: FormatError if it ends before."""
    end = member.offset_data + member.size
    if member.size < 0 or end > len(data):
        raise FormatError(f"a tar archive ends within its file {shown(member.name)}")
    return data[member.offset_data : end]


def _unpacked(file: IO[bytes]) -> IO[bytes]:
    """What a file holds, which may be compressed."""
    start = file.read(6)
    file.seek(0)
    for mark, opened in ((b"\x1f\x8b", gzip.open), (b"BZh", bz2.open), (b"\xfd7zXZ", lzma.open)):
        if start.startswith(mark):
            return cast(IO[bytes], opened(file, "rb"))
    return file


def check_name(name: str) -> None:
    """Raises: FormatError for a name that would lead out of the folder it is unpacked in."""
    windows = PureWindowsPath(name)
    outside = windows.drive or windows.root or ".." in PurePosixPath(name.replace("\\", "/")).parts
    if outside or "\0" in name or not name:
        raise FormatError(f"an archive has a file {shown(name)}, a name that leaves the archive")


def zip_members(
    fn: Source,
    limit_bytes: int = LIMIT_BYTES,
    check: Callable[[str], None] = check_name,
    may_lack_sums: bool = False,
) -> dict[str, memoryview]:
    """The bytes of each file of a zip archive, compared with their checksums.

    `check`: raises where a name is not wanted; `may_lack_sums`: a checksum of 0 says that none was made.

    Raises: as zip_extract.
    """
    data, found = bytes_of(fn), dict[str, memoryview]()
    try:
        with _opened(fn) as file, zipfile.ZipFile(file) as archive:
            entries = [entry for entry in archive.infolist() if not entry.is_dir()]
        packed = [entry for entry in entries if entry.compress_type != zipfile.ZIP_STORED]
        _check_limit(fn, sum([entry.file_size for entry in packed]), limit_bytes)
        if sum([entry.compress_size for entry in entries]) > len(data):  # or each may be all of it
            raise FormatError(f"{name_of(fn)} has files that lie over each other")
        for entry in entries:
            check(entry.filename)
            if entry.filename in found:
                raise FormatError(f"{name_of(fn)} has two files {shown(entry.filename)}")
            found[entry.filename] = entry_bytes(data, entry)
        summed = [entry for entry in entries if entry.CRC or not may_lack_sums]
        with ThreadPoolExecutor() as threads:
            deque(threads.map(check_sum, [found[e.filename] for e in summed], summed), maxlen=0)
    except FormatError:
        raise
    except _BROKEN as error:
        raise FormatError(
            f"{name_of(fn)} is no zip archive that can be read: {shown(error)}"
        ) from None
    return found


def _opened(fn: Source) -> IO[bytes]:
    fn = named_file(fn)
    if isinstance(fn, Tensor):
        return io.BytesIO(bytes(bytes_of(fn)))
    return open(fn, "rb")


def _check_limit(fn: Source, size: int, limit_bytes: int) -> None:
    if size > limit_bytes:
        raise FormatError(
            f"{name_of(fn)} unpacks to {size:,} bytes or more, and the limit is {limit_bytes:,};"
            " give limit_bytes= if that is meant"
        )


def _flat(data: memoryview) -> Tensor:
    return tensor_of(data, dtypes.uint8, (len(data),))
