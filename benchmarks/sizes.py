"""How big the project is: lines of each folder, operations, rules, the smallest backend.

Run: python benchmarks/sizes.py

Lines of code are lines with a part of a statement: no blank lines, comments or docstrings.
"""

from __future__ import annotations

from pathlib import Path

from proofgrad import Ops
from proofgrad.rules.procedures import lines_of

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("core/ir", "core/rewrite", "core/compile", "core/tensor", "rules", "verify", "backends",
           "proofgrad", "proofs", "core")  # fmt: skip


def modules() -> dict[str, list[Path]]:
    """The modules of each folder; a module counts once, for the deepest folder that is listed."""
    seen: set[Path] = set()
    found: dict[str, list[Path]] = {}
    for folder in FOLDERS:
        found[folder] = [p for p in sorted((ROOT / folder).rglob("*.py")) if p not in seen]
        seen.update(found[folder])
    return found


def main() -> None:
    """Print the tables."""
    rows = [(f, len(ps), lines_of(ps)) for f, ps in modules().items()]
    rows.append(("all", sum([files for _, files, _ in rows]), sum([lines for *_, lines in rows])))
    print(f"{'folder':<16}{'modules':>8}{'lines of code':>15}")
    for name, files, lines in rows:
        print(f"{name:<16}{files:>8}{lines:>15}")
    rules = sum([p.read_text().count("\nrule ") for p in (ROOT / "rules").glob("*.rules")])
    print(f"\noperations            {len(Ops)}")
    print(f"rules                 {rules}")
    print(f"smallest backend      {lines_of([ROOT / 'backends/reference/__init__.py'])} lines")


if __name__ == "__main__":
    main()
