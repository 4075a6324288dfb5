"""Files in wheels, which are zip archives with a record of their contents.

Owns: adding one. Does not own: building wheels (build_backend.py).
"""

from __future__ import annotations

import base64
import hashlib
import zipfile
from pathlib import Path


def add_file(wheel: Path, name: str, content: bytes) -> None:
    """One more file in a wheel, and in its record."""
    with zipfile.ZipFile(wheel) as before:
        files = {entry: before.read(entry) for entry in before.namelist()}
    record = next(entry for entry in files if entry.endswith(".dist-info/RECORD"))
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    files[record] = f"{name},sha256={digest},{len(content)}\n".encode() + files[record]
    files[name] = content
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as after:
        for entry, data in files.items():
            after.writestr(entry, data)
