"""A file from the network, kept for the next time.

Owns: `fetch` of any address. Does not own: data sets, whose files are checked by their sums (proofgrad/nn/datasets).
"""

from __future__ import annotations

import gzip
import hashlib
import http.client
import os
import shutil
import tarfile
import tempfile
import urllib.request
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from tqdm.auto import tqdm

from proofgrad.core import settings
from proofgrad.nn.datasets.fetch import CHUNK_BYTES, TIMEOUT_SECONDS, DownloadError

MOST_BYTES = 1 << 36  # of one file, as it arrives and as it is kept


def fetch(
    url: str,
    name: str | Path | None = None,
    subdir: str | None = None,
    gunzip: bool = False,
    allow_caching: bool = True,
    headers: Mapping[str, str] | None = None,
    sha256: str | None = None,
    extract: bool = False,
) -> Path:
    """The path of a file that was fetched, once; a path below `/` or `.` is its own.

    It lies in `subdir` of the folder for data (PROOFGRAD_DATA names another one) as `name`, or by a digest of the address;
    a `Path` is where it says. `gunzip`: unpacked. `extract`: the folder of what the tar archive holds, beside it. Without
    `allow_caching` it is fetched anew. It is there whole or not at all, and what it holds is checked if `sha256` is given:
    load weights that strangers made with `safe_load`, which executes nothing.

    Raises: DownloadError (an OSError), for another sum, too; ValueError for a name that leads out of the folder.
    """
    if url.startswith(("/", ".")):
        return Path(url)
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"only http and https are fetched, and files below / or ., not {url!r}")
    sent = {"User-Agent": "proofgrad", **(headers or {})}
    path = name if isinstance(name, Path) else _path_of(url, name, subdir, gunzip, headers)
    held = path.is_file() and allow_caching and sha256 in (None, path.is_file() and _sum_of(path))
    if not held:
        _fetch_to(path, urllib.request.Request(url, headers=sent), gunzip, sha256)
    return _extracted(path, not held) if extract else path


def _path_of(
    url: str, name: str | None, subdir: str | None, gunzip: bool, headers: Mapping[str, str] | None
) -> Path:
    """Where the file lies in the folder for data. Raises: ValueError for a name that leads out of it."""
    sent = f" {sorted(headers.items())}" if headers else ""
    digest = hashlib.sha256(f"{url}{' unpacked' if gunzip else ''}{sent}".encode()).hexdigest()
    folder = (settings.data_folder() / "downloads").resolve()
    path = (folder / (subdir or "") / (name or digest)).resolve()
    if path == folder or not path.is_relative_to(folder):
        raise ValueError(f"{subdir!r} and {name!r} name a file outside of {folder}")
    return path


def _fetch_to(path: Path, request: urllib.request.Request, gunzip: bool, sum_: str | None) -> None:
    """Raises: DownloadError; then what was there before is there still."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".part") as aside:
        part = Path(aside) / "part"
        try:
            with open(part, "wb") as file:
                _download(request, file, gunzip)
            if sum_ is not None and _sum_of(part) != sum_:
                raise ValueError(f"its SHA-256 is {_sum_of(part)}, not {sum_}")
        except (OSError, EOFError, zlib.error, http.client.HTTPException, ValueError) as error:
            raise DownloadError(f"cannot get {request.full_url}: {error}") from error
        os.replace(part, path)


def _sum_of(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _extracted(path: Path, is_new: bool) -> Path:
    """The folder of what a tar archive holds. Raises: DownloadError for what is none or names files elsewhere."""
    folder = path.with_name(f"{path.name}.extract")
    if is_new:
        shutil.rmtree(folder, ignore_errors=True)
    if folder.is_dir():
        return folder
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".part") as aside:
        part = Path(aside) / "part"
        try:
            with tarfile.open(path) as archive:
                if sum([member.size for member in archive]) > MOST_BYTES:
                    raise ValueError(f"it holds more than {MOST_BYTES:,} bytes")
                archive.extractall(part, filter="data")
        except (OSError, EOFError, zlib.error, tarfile.TarError, ValueError) as error:
            raise DownloadError(f"cannot unpack {path}: {error}") from error
        os.replace(part, folder)
    return folder


def _download(request: urllib.request.Request, file: IO[bytes], gunzip: bool) -> None:
    """Raises: OSError, ValueError, ... where it does not arrive whole."""
    with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as answer:
        announced = int(answer.headers.get("Content-Length") or 0)
        source = gzip.GzipFile(fileobj=answer) if gunzip else answer
        written, what = 0, Path(request.full_url).name
        with tqdm(
            total=announced or None, unit="B", unit_scale=True, desc=what, disable=None
        ) as bar:
            while chunk := source.read(CHUNK_BYTES):
                written += len(chunk)
                if written > MOST_BYTES:
                    raise ValueError(f"it is of more than {MOST_BYTES:,} bytes")
                file.write(chunk)
                bar.update(len(chunk))
    if announced and not gunzip and written != announced:
        raise ValueError(f"it ended after {written:,} of {announced:,} bytes")
