"""Code made from rules, kept on disk between processes.

Owns: under which key it is kept: the digests of the ledgers, the files that make it, the version of
Python. Does not own: what is made (index_terms.py, division_bounds.py), files (core/disk_cache.py).
"""

from __future__ import annotations

import importlib.util
import marshal
from collections.abc import Callable, Sequence
from functools import cache
from hashlib import sha256
from os import listdir
from pathlib import Path
from typing import Any

from proofgrad.core import settings
from proofgrad.core.disk_cache import DiskCache

# Whatever code is made by lies in these folders: their files are part of its key.
_CORE = Path(__file__).resolve().parent.parent
GENERATOR = (_CORE, _CORE / "ir", _CORE / "rewrite")

Ledgers = Sequence[tuple[str, str | None]]  # the name of each set, and the digest of its ledger


def kept(what: str, ledgers: Ledgers, make: Callable[[], Any]) -> Any:
    """What `make` gives for the rules of some sets: of this process, or of an earlier one.

    It is made of numbers, texts, code and tuples of them. That of rules without evidence, whose sets
    have no digest, is not kept.
    """
    if not all([digest is not None for _, digest in ledgers]):
        return make()
    key = sha256(f"{what} {generator_digest()} {list(ledgers)!r}".encode()).hexdigest()
    files = _files(settings.cache_folder() / "rules")
    known = files.get(key)
    if known is not None:
        return marshal.loads(known)  # noqa: S302 - our own file, under its checksum
    made = make()
    files.put(key, marshal.dumps(made))
    return made


@cache
def _files(folder: Path) -> DiskCache:
    """One for a folder, which warns once."""
    return DiskCache(folder)


def generator_files() -> list[str]:
    """The files that decide, beside the rules, what is made."""
    return [
        f"{folder}/{name}"
        for folder in GENERATOR
        for name in sorted(listdir(folder))
        if name.endswith(".py")
    ]


@cache
def generator_digest() -> str:
    """Of the files that make code, as this process found them, and of the version of Python."""
    digest = sha256(importlib.util.MAGIC_NUMBER)
    for file in generator_files():
        with open(file, "rb") as source:
            digest.update(sha256(source.read()).digest())
    return digest.hexdigest()
