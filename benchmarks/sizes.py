"""How big the project is, and of what shape: folders, functions, operations, rules, the smallest backend.

Run: python benchmarks/sizes.py

Lines of code are lines with a part of a statement: no blank lines, comments or docstrings. A function's lines are all of it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from proofgrad import Ops
from proofgrad.rules.procedures import lines_of

ROOT = Path(__file__).resolve().parent.parent
TOPS = ("core", "rules", "verify", "backends", "proofgrad", "proofs")
LONG_FILE, SHORT_FUNCTION = 300, 5  # lines
Function = ast.FunctionDef | ast.AsyncFunctionDef
Inherited = dict[str, frozenset[str]]


def modules() -> dict[str, list[Path]]:
    """The modules of each folder."""
    found: dict[str, list[Path]] = {}
    for top in TOPS:
        for path in sorted((ROOT / top).rglob("*.py")):
            found.setdefault(path.parent.relative_to(ROOT).as_posix(), []).append(path)
    return found


def functions(tree: ast.Module) -> Iterator[Function]:
    """Every function and method of a module."""
    for node in ast.walk(tree):
        if isinstance(node, Function):
            yield node


def without_docstring(tree: ast.Module, inherited: Inherited | None = None) -> Iterator[str]:
    """The public functions and classes of a module, and public methods of public classes, that say nothing of themselves.

    A method has the docstring of the one that it overrides (`inherited`: by class), a setter that of its property.
    """
    for node in tree.body:
        if not isinstance(node, (Function, ast.ClassDef)) or node.name.startswith("_"):
            continue
        if ast.get_docstring(node) is None:
            yield node.name
        if isinstance(node, ast.ClassDef):
            known = described_by_bases(node, inherited or {})
            for method in own_methods(node):
                if ast.get_docstring(method) is None and method.name not in known:
                    yield f"{node.name}.{method.name}"


def own_methods(node: ast.ClassDef) -> Iterator[Function]:
    """The public methods that a class has itself; of a property, what gets it."""
    for method in node.body:
        if isinstance(method, Function) and not method.name.startswith("_"):
            if not any(
                isinstance(d, ast.Attribute) and d.attr == "setter" for d in method.decorator_list
            ):
                yield method


def described_by_bases(node: ast.ClassDef, inherited: Inherited) -> frozenset[str]:
    """The methods that have a docstring in a class from which `node` inherits."""
    bases = [base.id for base in node.bases if isinstance(base, ast.Name)]
    return frozenset().union(*[inherited.get(base, frozenset()) for base in bases])


def described_methods(trees: list[ast.Module]) -> Inherited:
    """By the name of each class: its methods that have a docstring, here or in a base; of one name, those of all classes."""
    classes = [node for tree in trees for node in tree.body if isinstance(node, ast.ClassDef)]
    own = [{m.name for m in own_methods(c) if ast.get_docstring(m) is not None} for c in classes]
    found: Inherited = {}
    while True:
        before, found = found, {}
        for node, names in zip(classes, own):
            known = described_by_bases(node, before) | names
            found[node.name] = found.get(node.name, known) & known
        if found == before:
            return found


def shape(paths: list[Path]) -> list[tuple[str, str]]:
    """What the files and functions are like."""
    trees = [ast.parse(path.read_text("utf-8")) for path in paths]
    long = [path for path in paths if len(path.read_text("utf-8").splitlines()) > LONG_FILE]
    every = sorted(
        [((f.end_lineno or 0) - f.lineno + 1, f.name) for t in trees for f in functions(t)]
    )
    lengths, (most, largest) = [length for length, _ in every], every[-1]
    short = sum([length <= SHORT_FUNCTION for length in lengths])
    inherited = described_methods(trees)
    silent = [name for tree in trees for name in without_docstring(tree, inherited)]
    return [
        (f"files over {LONG_FILE} lines", str(len(long))),
        ("functions", str(len(lengths))),
        ("lines of a function", f"{median(lengths):.0f} in the median, {most} at most ({largest})"),
        (f"functions of {SHORT_FUNCTION} lines or fewer", str(short)),
        ("public names without docstring", str(len(silent))),
    ]


def main() -> None:
    """Print the tables."""
    found = modules()
    rows = [(f, len(ps), lines_of(ps)) for f, ps in found.items()]
    rows.append(("all", sum([files for _, files, _ in rows]), sum([lines for *_, lines in rows])))
    print(f"{'folder':<32}{'modules':>8}{'lines of code':>15}")
    for name, files, lines in rows:
        print(f"{name:<32}{files:>8}{lines:>15}")
    rules = sum([p.read_text().count("\nrule ") for p in (ROOT / "rules").glob("*.rules")])
    print()
    for name, value in shape([path for paths in found.values() for path in paths]):
        print(f"{name:<34}{value}")
    print(f"\noperations            {len(Ops)}")
    print(f"rules                 {rules}")
    print(f"smallest backend      {lines_of([ROOT / 'backends/reference/__init__.py'])} lines")


if __name__ == "__main__":
    main()
