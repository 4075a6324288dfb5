"""mypy --strict over every file of the project, as CI runs it; complaints are counted by folder.

    python tests/check_types.py

The folders are linked into .types/ as an install lays them out (.ci/layout.py), and mypy reads them there.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / ".ci"))

from layout import ROOT, TOP, lay_out  # noqa: E402

LAYOUT = ROOT / ".types"


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


def _real_path(position: re.Match[str]) -> str:
    path = (ROOT / position[0].rstrip(":")).resolve()
    return f"{path.relative_to(ROOT)}:"


def main() -> int:
    """The exit status of mypy: 0 if there is nothing to complain of."""
    lay_out(LAYOUT / TOP)
    status, text = complaints()
    print(text, end="")
    positions = re.findall(r"^(\S+)/[^/\s]+:\d+: error:", text, flags=re.M)
    for folder, count in sorted(Counter(positions).items()):
        print(f"{count:>5}  {folder}")
    return status


if __name__ == "__main__":
    sys.exit(main())
