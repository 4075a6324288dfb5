"""How big the procedures of the compiler are: what is neither a proven rule nor a proven step, in lines of code.

Of tactics also which steps they call.

Owns: counting lines, and which modules a procedure is made of. Does not own: the stages
(pipeline.py), printing (proofgrad/commands.py, verify/commands/evidence.py).

Lines of code are lines with a part of a statement: no blank lines, comments or docstrings.
"""

from __future__ import annotations

import ast
import tokenize
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import cache
from io import StringIO
from pathlib import Path
from typing import TypeAlias

from proofgrad.core.compile.passes import stages
from proofgrad.core.compile.passes.stages import GraphTactic, Procedure, Stage, Tactic
from proofgrad.rules.pipeline import GRAPH_STAGES, KERNEL_STAGES

_FOLDER = Path(stages.__file__).parents[1]
_PACKAGE = "proofgrad.core.compile."
_Step: TypeAlias = Procedure | Tactic | GraphTactic
_NO_CODE = frozenset(
    {
        tokenize.COMMENT,
        tokenize.NL,
        tokenize.NEWLINE,
        tokenize.INDENT,
        tokenize.DEDENT,
        tokenize.ENDMARKER,
    }
)


@dataclass(frozen=True, slots=True)
class Size:
    """One procedure: its stage, what it does, the files in core/compile that it runs, its own first."""

    stage: str
    name: str
    purpose: str
    modules: tuple[Path, ...]

    @property
    def lines(self) -> int:
        """Lines of code of its modules together."""
        return lines_of(self.modules)


@cache
def code_lines(text: str) -> int:
    """Lines of code of the text of a module."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(StringIO(text).readline):
        if token.type not in _NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and _is_text(node.value):
            lines.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def lines_of(paths: Iterable[Path]) -> int:
    """Lines of code of files, each of which counts once."""
    return sum([code_lines(path.read_text("utf-8")) for path in set(paths)])


def procedure_sizes(
    listed: Iterable[Stage] = (*GRAPH_STAGES, *KERNEL_STAGES),
    kinds: tuple[type[_Step], ...] = (Procedure,),
) -> list[Size]:
    """Every procedure of the compiler, or of the stages given, in the order in which they run; or the tactics."""
    return [
        Size(stage.name, stage.step.name, stage.step.purpose, _modules_of(stage.step))
        for stage in listed
        if isinstance(stage.step, kinds)
    ]


def _modules_of(procedure: _Step) -> tuple[Path, ...]:
    """The module of a procedure, then those in core/compile that it imports, and they import."""
    names = [procedure.function.__module__.removeprefix(_PACKAGE)]
    for name in names:  # it grows
        names += sorted(_imported(_file(name)) - set(names))
    return tuple([_file(name) for name in names])


def steps_called(size: Size, steps: Collection[str]) -> list[str]:
    """Of these steps those that the modules of a tactic import, but for the steps themselves."""
    own = [path for path in size.modules if path.parent != _FOLDER / "steps"]
    imported = [
        alias.name
        for path in own
        for node in _imports(path)
        if (node.module or "").startswith(f"{_PACKAGE}steps.")
        for alias in node.names
    ]
    return sorted(set(steps).intersection(imported))


def _file(name: str) -> Path:
    return _FOLDER / f"{name.replace('.', '/')}.py"


def _imported(path: Path) -> set[str]:
    """The modules of core/compile that a file imports."""
    modules = [node.module for node in _imports(path) if node.module is not None]
    return {name.removeprefix(_PACKAGE) for name in modules if name.startswith(_PACKAGE)}


@cache
def _imports(path: Path) -> tuple[ast.ImportFrom, ...]:
    """Read once: most modules are in the lists of many procedures and tactics."""
    tree = ast.parse(path.read_text("utf-8"))
    return tuple([node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)])
