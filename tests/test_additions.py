"""Lines of an operation that is being added count only for rules that name it, and may do no more than add it."""

from __future__ import annotations

from pathlib import Path

import pytest

from proofgrad.core.ir.ops import Ops
from proofgrad.rules import library
from proofgrad.rules.additions import AdditionError, added_in, check_only_adds, without

FILE = '''\
"""A file of the fingerprint."""

import enum


class Ops(enum.IntEnum):
    ADD = enum.auto()
    NEG = enum.auto()

    def __repr__(self):
        return self.name

    __str__ = __repr__


def _add(x, y):
    return x + y


TABLE = {
    Ops.ADD: _add,
    Ops.NEG: lambda x: -x,
}
'''


def marked(lines: str, indent: str = "") -> str:
    return f"{indent}# adding ROUND\n{lines}{indent}# end of ROUND\n"


def put(before: str, lines: str, indent: str = "") -> bytes:
    """The file with marked lines before the first line that begins so."""
    assert before in FILE
    return FILE.replace(before, marked(lines, indent) + before, 1).encode()


ADDS = {
    "a member": put("\n    def __repr__", "    ROUND = enum.auto()\n", "    "),
    "an entry": put("}\n", "    Ops.ROUND: round,\n", "    "),
    "an entry that is made": put("}\n", "    Ops.ROUND: _add(1, lambda x: x.pop()),\n", "    "),
    "an entry in the middle": put("    Ops.NEG: ", "    Ops.ROUND: lambda x: round(x),\n", "    "),
    "a function": put("TABLE = ", "def _round(x):\n    return round(x)\n"),
    "nothing": put("TABLE = ", ""),
    "several": put("}\n", "    Ops.ROUND: round,\n", "    ").replace(
        b"TABLE = ", marked("def _round(x):\n    return round(x)\n").encode() + b"TABLE = "
    ),
}
DOES_MORE = {
    "an entry of another operation": put("}\n", "    Ops.NEG: lambda x: x,\n", "    "),
    "an entry that changes another": put("}\n", "    Ops.ROUND: TABLE.pop(Ops.ADD),\n", "    "),
    "an entry made by what the file does not know": put(
        "}\n", "    Ops.ROUND: exec('x'),\n", "    "
    ),
    "an entry that gives a name": put("}\n", "    Ops.ROUND: (_add := max),\n", "    "),
    "entries of a table": put("}\n", "    **{Ops.NEG: abs},\n", "    "),
    "a function that there is": put("TABLE = ", "def _add(x, y):\n    return 0\n"),
    "a function of Python that is used": put("TABLE = ", "def enum():\n    return 0\n"),
    "a function by a name for all": put("TABLE = ", "def round(x):\n    return 0\n"),
    "a function with a default": put("TABLE = ", "def _r(x=_add(1, 2)):\n    return 0\n"),
    "a function with a decorator": put("TABLE = ", "@print\ndef _r(x):\n    return 0\n"),
    "a statement": put("TABLE = ", "_add = max\n"),
    "a statement behind": (FILE + marked("TABLE[Ops.ADD] = max\n")).encode(),
    "a member that moves others": put("    NEG = ", "    ROUND = enum.auto()\n", "    "),
    "a member with a value": put("\n    def __repr__", "    ROUND = 1\n", "    "),
    "another member": put("\n    def __repr__", "    OTHER = enum.auto()\n", "    "),
    "a method": put("\n    def __repr__", "    def _added(self):\n        return 1\n", "    "),
    "the head of a function": put("    return x + y", "    y = 0\n", "    "),
}


@pytest.mark.parametrize("content", ADDS.values(), ids=ADDS)
def test_lines_that_only_add_are_taken(content: bytes) -> None:
    check_only_adds("core/ir/file.py", content)
    assert added_in(content) == {"ROUND"}
    assert without(content, {"ROUND"}) == FILE.encode()
    assert without(content, {"SIGN"}) == content


@pytest.mark.parametrize("content", DOES_MORE.values(), ids=DOES_MORE)
def test_lines_that_do_more_are_refused(content: bytes) -> None:
    with pytest.raises(
        AdditionError, match=r"core/ir/file.py: between the marks of ROUND stands more"
    ):
        check_only_adds("core/ir/file.py", content)


@pytest.mark.parametrize(
    "text",
    [
        "# adding ROUND\nx = 1\n",
        "# adding ROUND\n# end of SIGN\n",
        "x = 1  # adding ROUND\n# end of ROUND\n",
    ],
)
def test_a_mark_without_its_end_is_refused(text: str) -> None:
    with pytest.raises(AdditionError, match="take a line of their own"):
        added_in(text.encode())


@pytest.fixture
def copied(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The files of the fingerprint in a folder of their own."""
    for path in {*library.meaning_files(), *library.execution_files()}:
        copy = tmp_path / path.relative_to(library.ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
    monkeypatch.setattr(library, "ROOT", tmp_path)
    return tmp_path


NAMES_IT, NAMES_ANOTHER = b'{"Node":["ROUND",[]]}', b'{"Node":["TRUNC",[]]}'


def add_round(folder: Path, value: str) -> None:
    file = folder / "core/ir/evaluate.py"
    entry = "    Ops.TRUNC: _trunc,\n"
    file.write_text(
        file.read_text().replace(entry, entry + marked(f"    Ops.ROUND: {value},\n", "    "))
    )


def test_only_rules_that_name_an_operation_depend_on_its_lines(copied: Path) -> None:
    before = library.Meanings()
    assert before.of(NAMES_IT) == before.of(NAMES_ANOTHER) == before.of(None)
    add_round(copied, "_round")
    after = library.Meanings()
    assert after.of(NAMES_ANOTHER) == before.of(None)
    proofs, execution = after.of(NAMES_IT).split("/")
    assert proofs not in before.of(None) and execution not in before.of(None)
    assert after.of(None) == after.of(NAMES_IT) == library.fingerprint()


def test_every_set_depends_on_lines_that_have_no_marks(copied: Path) -> None:
    before = library.fingerprint()
    file = copied / "core/ir/evaluate.py"
    file.write_text(
        file.read_text().replace("    Ops.TRUNC: _trunc,\n", "    Ops.ROUND: _round,\n")
    )
    assert library.Meanings().of(NAMES_ANOTHER) != before


def test_no_rule_is_used_while_marked_lines_do_more_than_add(copied: Path) -> None:
    add_round(copied, "_round,\n    Ops.ADD: _rounded(max)")
    with pytest.raises(AdditionError, match="core/ir/evaluate.py: between the marks of ROUND"):
        library.load_library()


def test_operations_that_rules_name_stand_in_ledgers_as_they_are_looked_for() -> None:
    ledger = library.ledger_file("cotangent").read_bytes()
    assert [
        op for op in (Ops.TRUNC, Ops.POW, Ops.PAD) if f'"{op.name}"'.encode() not in ledger
    ] == []
