"""The folders keep to the import table of docs/architecture.md, and the package list to the tree."""

from __future__ import annotations

import ast
import functools
import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
FOLDERS = ("core", "rules", "proofs", "verify", "backends", "proofgrad")
SOLVERS = {"z3", "cvc5", "bitwuzla"}


def table() -> dict[str, list[str]]:
    """From docs/architecture.md: folder -> what it may import."""
    rows = re.findall(
        r"^\| `([\w/.]+)` \| ([^|]+) \|", (ROOT / "docs/architecture.md").read_text(), re.MULTILINE
    )
    return {folder: [part.strip() for part in allowed.split(",")] for folder, allowed in rows}


def sources() -> list[Path]:
    return [p for folder in FOLDERS for p in sorted((ROOT / folder).rglob("*.py"))]


@functools.cache
def imports_of(path: Path) -> list[tuple[int, str]]:
    found: list[tuple[int, str]] = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            packages = module in ("proofgrad", "proofgrad.core")  # what is imported is a module
            names = [f"{module}.{alias.name}" for alias in node.names] if packages else [module]
            found += [(node.lineno, name) for name in names]
    return found


def folder_of(path: str, rows: dict[str, list[str]]) -> str | None:
    owners = [row for row in rows if path == row or path.startswith(row.removesuffix(".py") + "/")]
    return max(owners, key=len, default=None)


def test_every_folder_says_what_it_is() -> None:
    files = [path for path in sources() if path.name == "__init__.py"]
    silent = [
        str(p.relative_to(ROOT)) for p in files if not ast.get_docstring(ast.parse(p.read_text()))
    ]
    assert len(files) > 40 and not silent


def test_files_and_folders_of_the_page_exist() -> None:
    page = (ROOT / "docs/architecture.md").read_text()
    named = set(
        re.findall(r"`((?:core|rules|proofs|verify|backends|proofgrad|tests)/[\w/.]+)`", page)
    )
    named.discard("backends/NAME")
    assert len(named) > 60 and not [name for name in named if not (ROOT / name).exists()]


def test_imports_go_down_only() -> None:
    rows, wrong = table(), []
    assert len(rows) >= 9
    for path in sources():
        relative = str(path.relative_to(ROOT))
        owner = folder_of(relative, rows)
        if owner is None or rows[owner] == ["everything"]:
            continue
        for line, name in imports_of(path):
            if name.startswith("proofgrad."):
                target = name.removeprefix("proofgrad.").replace(".", "/")
                allowed = [a.removesuffix(".py") for a in (owner, *rows[owner])]
                if not any(target == a or target.startswith(a + "/") for a in allowed):
                    wrong.append(f"{relative}:{line} imports {name}")
    assert not wrong, "\n".join(wrong)


def test_what_a_folder_may_import_stands_above_it() -> None:
    rows = list(table())
    for number, owner in enumerate(rows):
        for name in set(table()[owner]) - {owner, "nothing", "everything"}:
            meant = [row for row in rows if f"{row.removesuffix('.py')}/".startswith(f"{name}/")]
            around = [row for row in rows if name.startswith(f"{row}/")]  # of a file, its folder
            assert meant or around, f"{owner} may import {name}, which has no row"
            below = set(meant or around) & set(rows[number + 1 :])
            assert not below, f"{owner} may import {name}, but {below} stands below it"


def test_each_folder_has_a_row_and_says_what_it_owns() -> None:
    rows = table()
    for path in [
        p for folder in ("core", "rules", "verify") for p in (ROOT / folder).rglob("__init__.py")
    ]:
        folder = str(path.parent.relative_to(ROOT))
        if folder != "core":
            assert folder in rows, folder
        if path.read_text():
            assert "Owns:" in path.read_text(), path


def test_names_are_imported_in_full() -> None:
    """`import core` would make a second copy of every class."""
    wrong = [
        f"{path}:{line} {name}"
        for path in sources()
        for line, name in imports_of(path)
        if name.startswith(".") or name.partition(".")[0] in FOLDERS[:-1]
    ]
    assert not wrong, "\n".join(wrong)


def test_only_verify_imports_a_solver() -> None:
    wrong = [
        str(path)
        for path in sources()
        if path.relative_to(ROOT).parts[0] != "verify"
        for _, name in imports_of(path)
        if name.partition(".")[0] in SOLVERS
    ]
    assert not wrong


def test_the_package_list_is_the_tree() -> None:
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    found = {
        ".".join(p.parent.relative_to(ROOT).parts)
        for folder in FOLDERS
        for p in (ROOT / folder).rglob("__init__.py")
    }
    named = {name if name.startswith("proofgrad") else f"proofgrad.{name}" for name in found}
    assert set(listed) == named


def test_files_have_a_docstring() -> None:
    missing = [
        str(path.relative_to(ROOT))
        for path in sources()
        if path.read_text().strip() and ast.get_docstring(ast.parse(path.read_text())) is None
    ]
    assert not missing, missing


def test_only_one_step_says_which_node_a_tensor_is() -> None:
    """It notes the nodes of parameters, to which a gradient is to come."""
    setters = {
        path.name
        for path in (ROOT / "core").rglob("*.py")
        if re.search(r"\._uop( =[^=]|, \S+ =[^=])", path.read_text())
    }
    assert setters == {"base.py", "factories.py"}  # where it is of no parameter yet


def test_no_two_files_of_tests_register_a_device_by_one_name() -> None:
    """They run in one process in any order, and the first that opens it would decide for both."""
    files: dict[str, set[str]] = {}
    for path in Path(__file__).parent.rglob("*.py"):
        if path.name != Path(__file__).name:
            for name in re.findall(r'^ *Device\.register\(\s*"([^"]+)"', path.read_text(), re.M):
                files.setdefault(name, set()).add(path.name)
    assert len(files) > 10
    assert not {name: where for name, where in files.items() if len(where) > 1}
