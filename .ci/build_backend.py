"""Builds as setuptools does; an editable install also shows type checkers where the packages are.

Owns: that addition. mypy and pyright look for a package first below the name `proofgrad-stubs` (PEP 561), in every folder that a
.pth file names; Python never imports a name with a hyphen. So the wheel of an editable install gets a .pth file with the
folder of such links (layout.py), and what runs is what the import hook of setuptools finds, as ever.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from layout import ROOT, TOP, lay_out
from setuptools import build_meta
from setuptools.build_meta import (
    build_sdist,
    build_wheel,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)
from wheel_files import add_file

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

FOLDER = ROOT / ".types" / "installed"
FILE = f"__types__.{TOP}.pth"


def build_editable(
    wheel_directory: str, config_settings: Any = None, metadata_directory: str | None = None
) -> str:
    """The name of the wheel, with the links for type checkers where links can be made."""
    name: str = build_meta.build_editable(wheel_directory, config_settings, metadata_directory)
    try:
        stubs = FOLDER / f"{TOP}-stubs"
        lay_out(stubs)
        (stubs / "__init__.pyi").symlink_to(
            stubs / "__init__.py"
        )  # which mypy asks for by this name
    except OSError as error:
        print(f"type checkers will not see {TOP}: cannot make links: {error}", file=sys.stderr)
    else:
        add_file(Path(wheel_directory) / name, FILE, f"{FOLDER}\n".encode())
    return name
