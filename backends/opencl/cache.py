"""Where PoCL keeps compiled kernels: in the cache of this project, or for this process only.

Owns: telling PoCL a folder that it can write to; without one it finds no device. Does not own: what
PoCL keeps there, how long.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from pathlib import Path

from proofgrad.core import settings
from proofgrad.core.messages import warn


def give_pocl_a_cache() -> Path:
    """Set POCL_CACHE_DIR to a folder that can be written to. Call before the first OpenCL call."""
    folder = settings.pocl_cache_folder()
    problem = _problem_of_writing(folder)
    if problem:
        folder = Path(tempfile.mkdtemp(prefix="proofgrad-pocl-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        warn(f"OpenCL kernel cache: {problem}; using {folder} for this process")
    os.environ["POCL_CACHE_DIR"] = str(folder)
    return folder


def _problem_of_writing(folder: Path) -> str:
    """Why nothing can be written to `folder`; nothing if it can."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(4096))
    except OSError as error:
        return f"cannot write to {folder} ({error.strerror})"
    return ""
