"""mypy --strict over every file of the project, as CI runs it; complaints are counted by folder.

    python tests/check_types.py

An editable install finds `proofgrad.core` in core/ by an import hook, which mypy does not run. So the folders are
linked into .types/ as an install lays them out, by the table in pyproject.toml, and mypy reads them there.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LAYOUT = ROOT / ".types"
TOP = "proofgrad"


def lay_out() -> None:
    """Links in .types/ from the names of packages to their folders."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    folders: dict[str, str] = settings["tool"]["setuptools"]["package-dir"]
    shutil.rmtree(LAYOUT, ignore_errors=True)
    (LAYOUT / TOP).mkdir(parents=True)
    for entry in (ROOT / folders[TOP]).iterdir():
        (LAYOUT / TOP / entry.name).symlink_to(entry)
    for package, folder in folders.items():
        if package != TOP:
            (LAYOUT / TOP / package.removeprefix(f"{TOP}.")).symlink_to(ROOT / folder)


def complaints() -> tuple[int, str]:
    """The exit status of mypy, and what it prints, with the real path of each file."""
    ran = subprocess.run(
        [sys.executable, "-m", "mypy", "--cache-dir", str(ROOT / ".mypy_cache"), "-p", TOP],
        env={**os.environ, "MYPYPATH": str(LAYOUT)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return ran.returncode, re.sub(
        r"^\.types/\S+?:", _real_path, ran.stdout, flags=re.M
    ) + ran.stderr


def _real_path(place: re.Match[str]) -> str:
    path = (ROOT / place[0].rstrip(":")).resolve()
    return f"{path.relative_to(ROOT)}:"


def main() -> int:
    """The exit status of mypy: 0 if there is nothing to complain of."""
    lay_out()
    status, text = complaints()
    print(text, end="")
    places = re.findall(r"^(\S+)/[^/\s]+:\d+: error:", text, flags=re.M)
    for folder, count in sorted(Counter(places).items()):
        print(f"{count:>5}  {folder}")
    return status


if __name__ == "__main__":
    sys.exit(main())
