"""Drivers that pip has installed, made known to the loader of OpenCL.

Owns: finding Intel's. Does not own: PoCL, which pyopencl's own wheel finds.

The wheel intel-opencl-rt puts its library into the environment's lib folder, and tells nobody: the loader looks for files that
name libraries, in a folder that OCL_ICD_VENDORS names, else in /etc/OpenCL/vendors.
"""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

from proofgrad.core import settings

SYSTEM = Path("/etc/OpenCL/vendors")
LIBRARY = "libintelocl.so"


def name_drivers_of_wheels() -> None:
    """Call before pyopencl is imported. Does nothing where the user has said where drivers are, or there is no such wheel."""
    if settings.text("OCL_ICD_VENDORS") or not _library().exists():
        return
    folder = _folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _write(folder / "intel.icd", str(_library()))
        for known in SYSTEM.glob("*.icd") if SYSTEM.is_dir() else ():
            _write(folder / f"system-{known.name}", known.read_text().strip())
    except OSError:  # where nothing can be written, the drivers of the system are used
        return
    os.environ["OCL_ICD_VENDORS"] = str(folder)


def not_loaded() -> str:
    """What Intel's driver lacks, if it was named here and cannot be loaded: the loader passes it over and says nothing."""
    if settings.text("OCL_ICD_VENDORS") != str(_folder()) or not _library().exists():
        return ""
    try:
        ctypes.CDLL(str(_library()))
    except OSError as error:
        return f"Intel's driver does not load ({error}): pip install intel-cmplr-lib-rt"
    return ""


def _library() -> Path:
    return Path(sys.prefix) / "lib" / LIBRARY


def _folder() -> Path:
    return settings.cache_folder() / "opencl-drivers"


def _write(path: Path, text: str) -> None:
    if not path.exists() or path.read_text().strip() != text:
        path.write_text(f"{text}\n")
