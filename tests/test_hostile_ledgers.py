"""Ledgers and kept files of somebody who can make seals: they may be refused, and never run code."""

from __future__ import annotations

import contextlib
import copy
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from proofgrad.core.disk_cache import DiskCache
from proofgrad.core.ir.uop import UOp
from proofgrad.core.rewrite import kept_code
from proofgrad.core.rewrite.division_bounds import DIVISIONS, bounds_code
from proofgrad.core.rewrite.engine import Rewriter
from proofgrad.core.rewrite.facts import Facts
from proofgrad.core.rewrite.index_code import index_code
from proofgrad.core.rewrite.ledger import (
    EvidenceError,
    entry_key,
    ledger_text,
    open_ledger,
    read_ledger,
    seal,
)
from proofgrad.core.rewrite.match import RuleSet
from proofgrad.rules.library import fingerprint, ledger_file, rule_file

SOLVERS = {"z3": "0"}
# The sets of which code is made, and one of tensors.
SETS = ("algebra", "divmod", "bounds", "movement")


def injections(canary: Path) -> list[Any]:
    """What may stand in place of any text: code after the end of a comment, a string, a name."""
    run = f"__import__('pathlib').Path({str(canary)!r}).touch()"
    return [
        f"x\n    {run}\n",
        f"x\r    {run}",
        f"x\x0c{run}",
        f'"); {run}; ("',
        f"0 or {run}",
        f"extractor); {run} #",
        "__class__",
        "lambda: 0",
        "é",
        "x" * 200_000,
        "\x1b[2J",
        "",
    ]


NUMBERS: list[Any] = ["7", 1 << 9999, -(1 << 62), 0.5, 1e308, None, True, []]


def deep(part: Any) -> list[Any]:
    for _ in range(400):
        part = [part]
    return list(part)


def positions(part: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Every position within JSON, and what stands there."""
    yield path, part
    inner = (
        part.items()
        if isinstance(part, dict)
        else enumerate(part)
        if isinstance(part, list)
        else ()
    )
    for key, value in inner:
        yield from positions(value, (*path, key))


def with_part(whole: Any, path: tuple[Any, ...], part: Any) -> Any:
    """A copy of JSON with another part at a position."""
    if not path:
        return part
    made = copy.copy(whole)
    made[path[0]] = with_part(whole[path[0]], path[1:], part)
    return made


def hostile_entries(entry: dict[str, Any], canary: Path) -> Iterator[dict[str, Any]]:
    for path, part in positions(entry):
        match part:
            case str():
                others = injections(canary)
            case bool() | int() | float() | None:
                others = [*NUMBERS, injections(canary)[0]]
            case list():
                others = [deep(part), [part], {"Name": injections(canary)[0]}, "x"]
            case _:
                others = [deep(part), {injections(canary)[0]: part}, None]
        for other in others:
            if path:
                yield with_part(entry, path, other)
    for path, part in positions(entry):
        if isinstance(part, dict) and path:
            for name in part:
                renamed = {injections(canary)[0] if n == name else n: v for n, v in part.items()}
                yield with_part(entry, path, renamed)


def ledger_of(name: str, entry: dict[str, Any], meanings: str) -> bytes:
    """A ledger of one entry, with every seal and digest made again."""
    # What has no rule cannot be sealed, and is read as it is.
    with contextlib.suppress(ValueError, TypeError, AttributeError, KeyError, RecursionError):
        entry = {**entry, "key": entry_key(entry["rule"], meanings, SOLVERS)}
        entry = {**entry, "seal": seal(entry)}
    source = rule_file(name).read_bytes()
    return ledger_text(name, source, meanings, SOLVERS, [entry]).encode()


def use(rules: RuleSet) -> None:
    """Make of the rules what the compiler makes of them, and run it."""
    facts = Facts(rules)
    x, y = UOp.range(9, 0), UOp.range(7, 1)
    for term in ((x * 12 + y) // 4 % 3, (x * 4 + 1) // 4, (x + 0) * 1, x % 16):
        Rewriter([rules], facts).rewrite(term)
    for kind in DIVISIONS:
        exec(compile(bounds_code(kind, rules.rules), "<bounds>", "exec"), {})
    text = index_code(rules.rules).text
    namespace: dict[str, Any] = {}
    exec(compile(text, "<rules>", "exec"), namespace)


# A part that is right by itself, but not where it stands, ends a rewrite with an error.
HARMLESS = (ValueError, TypeError, KeyError, IndexError, AssertionError)


@pytest.mark.parametrize("name", SETS)
def test_no_text_of_a_ledger_runs(name: str, tmp_path: Path) -> None:
    canary, meanings = tmp_path / "canary", fingerprint()
    entries = json.loads(ledger_file(name).read_bytes())["rules"]
    source = rule_file(name).read_bytes()
    by_length = sorted(entries, key=lambda entry: len(json.dumps(entry["rule"])))
    counts = {"refused": 0, "failed": 0, "used": 0}
    for entry in (by_length[0], by_length[len(entries) // 2]):
        small = {**entry, "obligations": entry["obligations"][:1]}
        for hostile in hostile_entries(small, canary):
            ledger = ledger_of(name, hostile, meanings)
            try:
                use(RuleSet(name, open_ledger(name, source, ledger, meanings), proven=True))
                counts["used"] += 1
            except EvidenceError:
                counts["refused"] += 1
            except HARMLESS:
                counts["failed"] += 1
            assert not canary.exists(), hostile
    assert counts["refused"] > 500, counts
    assert counts["refused"] > 4 * counts["failed"], counts


def test_code_that_is_made_is_of_names_made_here() -> None:
    """A rule whose every name is an injection gives the code that it gives under its own."""
    for name in ("algebra", "divmod", "compare"):
        rules = read_ledger(
            name, rule_file(name).read_bytes(), ledger_file(name).read_bytes(), fingerprint()
        )
        plain = index_code(rules).text
        renamed = [
            replace(rule, name=f"x\n{k}", text="\nx", doc="\n") for k, rule in enumerate(rules)
        ]
        assert index_code(renamed).text == plain


# -- files of the cache ----------------------------------------------------------------------------


def test_code_kept_under_the_name_of_other_code_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROOFGRAD_CACHE", str(tmp_path))
    made = [kept_code.kept(what, [("a", "b")], lambda what=what: what) for what in ("one", "two")]
    assert made == ["one", "two"]
    first, second = [path for path in sorted(tmp_path.rglob("*")) if path.is_file()]
    contents = [first.read_bytes(), second.read_bytes()]
    first.write_bytes(contents[1])
    second.write_bytes(contents[0])
    with pytest.warns(UserWarning, match="is damaged and is not used"):
        again = [kept_code.kept(w, [("a", "b")], lambda w=w: w + "!") for w in ("one", "two")]
    assert again == ["one!", "two!"]


@pytest.mark.parametrize("kinds", [("plans", "plans"), ("plans", "cpu")])
def test_a_file_is_of_its_key_and_kind_alone(tmp_path: Path, kinds: tuple[str, str]) -> None:
    caches = [DiskCache(tmp_path / kind) for kind in kinds]
    keys = ("ab12", "ab34" if kinds[0] == kinds[1] else "ab12")
    caches[0].put(keys[0], b"x * 2")
    target = tmp_path / kinds[1] / "ab" / keys[1]
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes((tmp_path / kinds[0] / "ab" / keys[0]).read_bytes())
    with pytest.warns(UserWarning, match="is damaged and is not used"):
        assert caches[1].get(keys[1]) is None
    assert caches[0].get(keys[0]) == (b"x * 2" if keys[0] == "ab12" else None)


@pytest.mark.long
def test_files_of_programs_exchanged_between_names_change_no_result(tmp_path: Path) -> None:
    """Every pair of files of two programs, exchanged: plans, object code, code made from rules."""
    program = "import sys\nfrom proofgrad import Tensor\nprint((Tensor([1.0, 2.0]) * float(sys.argv[1])).tolist())"

    def run(factor: int) -> tuple[str, set[Path]]:
        before = {path for path in tmp_path.rglob("*") if path.is_file()}
        environment = {**os.environ, "PLANS": "1", "PROOFGRAD_CACHE": str(tmp_path)}
        command = [sys.executable, "-W", "ignore", "-c", program, str(factor)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        return done.stdout, {path for path in tmp_path.rglob("*") if path.is_file()} - before

    twice, files = run(2)
    thrice, others = run(3)
    assert (twice, thrice) == ("[2.0, 4.0]\n", "[3.0, 6.0]\n")
    for file in files:
        for other in others:
            if file.parent.parent == other.parent.parent:
                other.write_bytes(file.read_bytes())
    assert run(3)[0] == thrice
    assert run(2)[0] == twice
