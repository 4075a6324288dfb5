"""A file from the network, kept for the next time.

Owns: `fetch` of any address. Does not own: data sets, whose files are checked by their sums (proofgrad/nn/datasets).
"""

from __future__ import annotations

import gzip
import hashlib
import http.client
import os
import tempfile
import urllib.request
import zlib
from pathlib import Path
from typing import IO

from tqdm.auto import tqdm

from proofgrad.core import settings
from proofgrad.nn.datasets.fetch import CHUNK_BYTES, TIMEOUT_SECONDS, DownloadError

MOST_BYTES = 1 << 36  # of one file, as it arrives and as it is kept


def fetch(
    url: str,
    name: str | None = None,
    subdir: str | None = None,
    gunzip: bool = False,
    allow_caching: bool = True,
) -> Path:
    """The path of a file that was fetched, once; a path below `/` or `.` is its own.

    It lies in `subdir` of the folder for data (PROOFGRAD_DATA names another one) as `name`, or by a digest of the address.
    `gunzip`: unpacked. Without `allow_caching` it is fetched anew. It is there whole or not at all, but nobody checks what
    it holds: load weights that strangers made with `safe_load`, which executes nothing.

    Raises: DownloadError (an OSError); ValueError for a name that leads out of the folder.
    """
    if url.startswith(("/", ".")):
        return Path(url)
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"only http and https are fetched, and files below / or ., not {url!r}")
    digest = hashlib.sha256(f"{url}{' unpacked' if gunzip else ''}".encode()).hexdigest()
    folder = (settings.data_folder() / "downloads").resolve()
    path = (folder / (subdir or "") / (name or digest)).resolve()
    if path == folder or not path.is_relative_to(folder):
        raise ValueError(f"{subdir!r} and {name!r} name a file outside of {folder}")
    if path.is_file() and allow_caching:
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".part") as aside:
        part = Path(aside) / "part"
        try:
            with open(part, "wb") as file:
                _download(url, file, gunzip)
        except (OSError, EOFError, zlib.error, http.client.HTTPException, ValueError) as error:
            raise DownloadError(f"cannot get {url}: {error}") from error
        os.replace(part, path)
    return path


def _download(url: str, file: IO[bytes], gunzip: bool) -> None:
    """Raises: OSError, ValueError, ... where it does not arrive whole."""
    request = urllib.request.Request(url, headers={"User-Agent": "proofgrad"})
    with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as answer:
        announced = int(answer.headers.get("Content-Length") or 0)
        source = gzip.GzipFile(fileobj=answer) if gunzip else answer
        written, what = 0, Path(url).name
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
