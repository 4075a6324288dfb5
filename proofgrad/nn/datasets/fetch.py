"""Files from the network, kept in a folder and checked each time they are used.

Owns: mirrors, resuming, checksums, what is said when nothing works. The folder is
settings.data_folder(): $PROOFGRAD_DATA if that is set. A file that is there is never fetched again.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from proofgrad.core import settings

CHUNK_BYTES = 1 << 20
TIMEOUT_SECONDS = 30.0


class DownloadError(OSError, ValueError):
    """No mirror gave the file: says what each answered, and where to put the file by hand."""


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file that mirrors have under one name."""

    name: str
    size_bytes: int
    sha256: str


def fetch(file: RemoteFile, mirrors: Sequence[str], folder: str | os.PathLike[str]) -> Path:
    """The path of the file, fetched from the first mirror that has it unless it is there.

    `folder` is below settings.data_folder(). What arrived before a break is kept and continued.

    Raises: DownloadError.
    """
    position = settings.data_folder() / folder
    path = position / file.name
    if path.exists() and sha256_of(path) == file.sha256:
        return path
    failures = [f"{path} is there, but is another file"] if path.exists() else []
    position.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    for mirror in mirrors:
        problem = _from_mirror(mirror + file.name, part, file)
        if problem is None:
            os.replace(part, path)
            return path
        failures.append(problem)
    raise DownloadError(
        "\n  ".join([f"cannot get {file.name}:", *failures])
        + f"\nwithout a network, put the file with SHA-256 {file.sha256} at {path}"
        " (PROOFGRAD_DATA names another folder)"
    )


def _from_mirror(url: str, part: Path, file: RemoteFile) -> str | None:
    """Fill `part` with the file; else what went wrong. A part of another file is fetched anew."""
    while True:
        try:
            continued = _download(url, part, file.size_bytes)
        except (OSError, http.client.HTTPException, ValueError) as error:
            return f"{url}: {error}"
        found = sha256_of(part)
        if found == file.sha256:
            return None
        part.unlink()
        if not continued:
            return f"{url}: what it sent is another file (its SHA-256 is {found})"


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _download(url: str, part: Path, size_bytes: int) -> bool:
    """Append to `part` what it lacks, or all if the server cannot continue; whether it continued."""
    if not url.startswith(("http://", "https://")):
        raise ValueError("only http and https are fetched")
    have = part.stat().st_size if part.exists() else 0
    if have >= size_bytes:
        part.unlink()
        have = 0
    headers = {"User-Agent": "proofgrad"} | ({"Range": f"bytes={have}-"} if have else {})
    request = urllib.request.Request(url, headers=headers)
    with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as answer:
        continues: bool = answer.status == http.client.PARTIAL_CONTENT
        with open(part, "ab" if continues else "wb") as file:
            while chunk := answer.read(CHUNK_BYTES):
                file.write(chunk)
                if file.tell() > size_bytes:
                    raise ValueError(f"it sends more than {size_bytes:,} bytes")
    if part.stat().st_size < size_bytes:
        raise ValueError(f"it ended after {part.stat().st_size:,} of {size_bytes:,} bytes")
    return continues
