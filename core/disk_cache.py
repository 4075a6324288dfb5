"""Bytes kept on disk between processes: object code of kernels, code made from rules.

Owns: file names, atomic writing, what happens when a file or the folder is bad. Does not own: what
the bytes mean.

A file is its own checksum followed by the bytes. One that does not fit is deleted and made again.
Where the folder cannot be used, one warning is given and everything stays in memory.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import warnings
from pathlib import Path

_CHECKSUM_BYTES = 32


class DiskCache:
    """Bytes by key. Never raises: a cache that fails is a cache that misses."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._memory: dict[str, bytes] = {}
        self._warned = False

    def get(self, key: str) -> bytes | None:
        if key in self._memory:
            return self._memory[key]
        path = self._path(key)
        try:
            stored = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            self._warn(error)
            return None
        data = stored[_CHECKSUM_BYTES:]
        if hashlib.sha256(data).digest() == stored[:_CHECKSUM_BYTES]:
            return data
        self._warn(f"{path} is damaged and is made again")
        self._delete(path)
        return None

    def put(self, key: str, data: bytes) -> None:
        path = self._path(key)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._write(path, hashlib.sha256(data).digest() + data)
        except OSError as error:
            self._memory[key] = data
            self._warn(error)

    def _path(self, key: str) -> Path:
        return self.folder / key[:2] / key

    def _write(self, path: Path, data: bytes) -> None:
        """Written aside and moved into place, so that readers see all of it or nothing."""
        descriptor, aside = tempfile.mkstemp(dir=path.parent, prefix=".new-")
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
            os.replace(aside, path)
        except OSError:
            self._delete(Path(aside))
            raise

    def _delete(self, path: Path) -> None:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            self._warn(error)

    def _warn(self, problem: object) -> None:
        if not self._warned:
            self._warned = True
            warnings.warn(f"cache in {self.folder}: {problem}; continuing without it", stacklevel=3)
