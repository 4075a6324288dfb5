"""The packages of proofgrad in one folder of links, for tools that do not run import hooks.

Owns: the links. An editable install finds `proofgrad.core` in core/ by an import hook, which type checkers do not run.
"""

from __future__ import annotations

import shutil
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TOP = "proofgrad"


def lay_out(target: Path) -> None:
    """Links in the folder `target` from the names of modules to their positions, by the table in pyproject.toml.

    Raises: OSError where links cannot be made, as on Windows without the right to.
    """
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    folders: dict[str, str] = settings["tool"]["setuptools"]["package-dir"]
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for entry in (ROOT / folders[TOP]).iterdir():
        (target / entry.name).symlink_to(entry)
    for package, folder in folders.items():
        if package != TOP:
            (target / package.removeprefix(f"{TOP}.")).symlink_to(ROOT / folder)
