"""Bytes kept on disk between processes: object code of kernels, code made from rules.

Owns: file names, atomic writing, what happens when a file or the folder is bad. Does not own: what
the bytes mean.

A file is a mark of this layout, a checksum, and the bytes. The checksum is of the kind of the cache, the
key and the bytes, so that a file under the name of another is damaged as one with a changed byte is: it
is deleted, and what it held is made again. A file without the mark, as other versions leave, is not looked at.
Where the folder cannot be used, one warning is given and everything stays in memory. Files lie in 256
folders by the beginning of their key; each writer keeps the one that it writes to below its share of
the limit, so that nobody ever has to look at all of them.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
import time
from pathlib import Path

from proofgrad.core.messages import warn

_MARK = b"proofgrad kept 2\n"
_CHECKSUM_BYTES = 32
_SHARES = 256
LIMIT_BYTES = 1 << 30
_UNFINISHED = ".new-"  # how a file begins that is being written
_GIVEN_UP_SECONDS = 3600  # one so old was left by a process that died


class DiskCache:
    """Bytes by key, a hexadecimal digest. Never raises: a cache that fails is a cache that misses."""

    def __init__(self, folder: Path, limit_bytes: int = LIMIT_BYTES) -> None:
        self.folder, self.limit_bytes = folder, limit_bytes
        self._memory: dict[str, bytes] = {}
        self._warned = False

    def get(self, key: str) -> bytes | None:
        """The bytes kept under `key`, or None; a damaged file is deleted with a warning and counts as missing."""
        if key in self._memory:
            return self._memory[key]
        path = self._path(key)
        try:
            is_too_large = path.stat().st_size > self.limit_bytes
            stored = b"" if is_too_large else path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            self._warn(f"{error}; continuing without it")
            return None
        if not stored.startswith(_MARK) and not is_too_large:
            return None
        start = len(_MARK) + _CHECKSUM_BYTES
        data = stored[start:]
        if self._checksum(key, data) == stored[len(_MARK) : start]:
            with contextlib.suppress(
                OSError
            ):  # where only reading is allowed, nobody deletes either
                os.utime(path)
            return data
        self._warn(f"{path} is damaged and is not used")
        self._delete(path)
        return None

    def put(self, key: str, data: bytes) -> None:
        """Keep `data` under `key`, on disk or, where that fails, in this process; then delete the oldest files."""
        path = self._path(key)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._write(path, _MARK + self._checksum(key, data) + data)
            self._delete_oldest(path)
        except OSError as error:
            self._memory[key] = data
            self._warn(f"{error}; continuing without it")

    def delete(self, key: str) -> bool:
        """Keep nothing under `key` any more; whether there was something."""
        was_there = self._memory.pop(key, None) is not None or self._path(key).exists()
        self._delete(self._path(key))
        return was_there

    def _path(self, key: str) -> Path:
        return self.folder / key[:2] / key

    def _checksum(self, key: str, data: bytes) -> bytes:
        """Of what is kept, and as what: the name of the folder is the kind of the cache."""
        digest = hashlib.sha256(f"{self.folder.name}/{key}\n".encode())
        digest.update(data)
        return digest.digest()

    def _write(self, path: Path, data: bytes) -> None:
        """Written unfinished and moved into position, so that readers see all of it or nothing."""
        descriptor, unfinished = tempfile.mkstemp(dir=path.parent, prefix=_UNFINISHED)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
            os.replace(unfinished, path)
        except OSError:
            self._delete(Path(unfinished))
            raise

    def _delete_oldest(self, written: Path) -> None:
        """Files that were not used for longest, until those beside `written` fit their share."""
        found = []
        for entry in os.scandir(written.parent):
            with contextlib.suppress(FileNotFoundError):  # another process deletes as well
                status = entry.stat()
                found.append((status.st_mtime, status.st_size, entry.path))
        left = sum([size for _, size, _ in found]) - self.limit_bytes // _SHARES
        for used, size, path in sorted(found):
            is_unfinished = os.path.basename(path).startswith(_UNFINISHED)
            is_given_up = is_unfinished and used < time.time() - _GIVEN_UP_SECONDS
            if is_given_up or (left > 0 and not is_unfinished and path != str(written)):
                self._delete(Path(path))
                left -= size

    def _delete(self, path: Path) -> None:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            self._warn(f"{error}; continuing without it")

    def _warn(self, problem: str) -> None:
        if not self._warned:
            self._warned = True
            warn(f"cache in {self.folder}: {problem}")
