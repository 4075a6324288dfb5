"""The ledger: evidence for each rule of a set, and the gate that rules pass to be used.

Owns: the format, what an entry's key and seal cover, every reason to refuse. Does not own: proving
and writing (verify/), where the files lie (rules/library.py).

The rules of a set are those in the ledger, not those in the file: what was proven is what runs. The
file is read only to see that the ledger is about this very text. Ledgers are treated as hostile:
bounded in size, read as plain JSON, each part checked to be what it may be (rule_check.py), no text of
them ever executed. The seal finds accidents and careless edits; it
is no signature, and only `verify-rules --all` proves anything (docs/trust.md).
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import Any

from proofgrad.core.rewrite.rule import Rule, rule_from_json, rule_to_json
from proofgrad.core.rewrite.rule_check import check_rule, check_text

FORMAT = 2
MOST_BYTES = 16 << 20
COMMAND = "verify-rules"
PROVED = "proved"
VERDICTS = (PROVED, "bounded", "refuted", "unknown")

_NOT_PROVEN_PARTS = frozenset({"text", "doc", "examples", "line"})
_ENTRY_PARTS = frozenset(
    {"name", "rule", "verdict", "reason", "obligations", "conditions", "instances", "key", "seal"}
)
_OTHER_MEANINGS = (
    "it was proven with other meanings of the operations (the semantics, the encoder or the"
    " functions of rules have changed since)"
)
_OTHER_EXECUTION = "what executes it has changed since it was admitted (core/rewrite or core/ir)"
_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)
_ITEM = re.compile(r"^[ \t]*(?:rule|bounds|fact|cotangent)[ \t]+(\w+)", re.MULTILINE)
_ITEM_END = re.compile(r'^[ \t]*(?:"|#|(?:rule|bounds|fact|cotangent|example)\b)', re.MULTILINE)


class EvidenceError(RuntimeError):
    """A rule without fresh evidence. The message names the rule, the reason and the command."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Why the rule `name` (full name, or of the set alone) may not be used."""

    name: str
    reason: str

    def __str__(self) -> str:
        return f"rule {self.name} may not be used: {self.reason}; run `{COMMAND}`"


# -- what covers what -----------------------------------------------------------------------------


def source_digest(source: bytes) -> str:
    """The digest of a rule file that a ledger holds."""
    return sha256(source).hexdigest()


def entry_key(rule: Rule | Mapping[str, Any], fingerprint: str, solvers: Mapping[str, str]) -> str:
    """Covers what was proven: the rule but for its prose, the meanings, the solvers.

    A fingerprint is a digest of the meanings, then "/" and one of what executes rules, which the head
    of a ledger holds for all of its entries.
    """
    data = rule_to_json(rule) if isinstance(rule, Rule) else rule
    proven = {part: value for part, value in data.items() if part not in _NOT_PROVEN_PARTS}
    return _digest([proven, meanings_of(fingerprint), dict(solvers)])


def meanings_of(fingerprint: str) -> str:
    """The part of a fingerprint on which proofs depend."""
    return fingerprint.partition("/")[0]


def seal(entry: Mapping[str, Any]) -> str:
    """Covers every part of an entry but the seal; the proven parts of the rule by its key."""
    parts = {part: value for part, value in entry.items() if part not in ("seal", "rule")}
    parts["prose"] = {part: entry["rule"].get(part) for part in _NOT_PROVEN_PARTS}
    return _digest(parts)


def _digest(value: Any) -> str:
    return sha256(_CANONICAL.encode(value).encode()).hexdigest()


# -- the file --------------------------------------------------------------------------------------

_RULES_PART = b'"rules": ['
_DIGEST_PART = b'"digest": "'


def ledger_text(
    ruleset: str,
    source: bytes,
    fingerprint: str,
    solvers: Mapping[str, str],
    entries: Sequence[Mapping[str, Any]],
) -> str:
    """The file: one line a rule, so that a change shows as the change of a line."""
    frame = {
        "format": FORMAT,
        "ruleset": ruleset,
        "source": source_digest(source),
        "fingerprint": fingerprint,
        "solvers": dict(solvers),
        "verdicts": dict(Counter([entry["verdict"] for entry in entries])),
    }
    head = json.dumps(frame, indent=1).removesuffix("\n}")
    lines = ",\n".join([json.dumps(entry, separators=(",", ":")) for entry in entries])
    body = f'{head},\n "rules": [\n{lines}\n],\n '.encode()
    return (body + _digest_line(body)).decode()


def _digest_line(body: bytes | memoryview) -> bytes:
    return _DIGEST_PART + sha256(body).hexdigest().encode() + b'"\n}\n'


# -- reading ---------------------------------------------------------------------------------------


def read_ledger(ruleset: str, source: bytes, ledger: bytes, fingerprint: str) -> tuple[Rule, ...]:
    """The rules of `ruleset`, all of them proven. `source`: the bytes of the rule file.

    Raises: EvidenceError for the first rule without fresh evidence.
    """
    rules, problems = _read(ruleset, source, ledger, fingerprint)
    if problems:
        raise EvidenceError(str(problems[0]))
    return tuple(rules)


def open_ledger(
    ruleset: str, source: bytes, ledger: bytes, fingerprint: str
) -> Sequence[Rule] | LazyRules:
    """As `read_ledger`, but each rule of a ledger as it was written is decoded when asked for.

    Raises: EvidenceError, now and not when the rules are asked for.
    """
    if _is_as_written(ruleset, source, ledger, fingerprint):
        return LazyRules(ruleset, ledger)
    return read_ledger(ruleset, source, ledger, fingerprint)


class LazyRules:
    """The rules of a ledger that is as it was written, each decoded when it is first asked for.

    Raises: EvidenceError then, for an entry that is no rule of the set.
    """

    def __init__(self, ruleset: str, ledger: bytes) -> None:
        self._ruleset = ruleset
        self._ledger = ledger
        self._decoded: dict[int, Rule] = {}
        self.digest = ledger[ledger.rfind(_DIGEST_PART) :].decode()

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Rule]:
        return iter([self._rule(k) for k in range(len(self))])

    def of_ops(self, names: Collection[str]) -> list[Rule]:
        """In their order, the rules whose left side is one of these operations, or any term."""
        return [self._rule(k) for k, op in enumerate(self._ops) if op is None or op in names]

    @cached_property
    def _entries(self) -> list[tuple[int, int]]:
        """Where the line of each rule begins and ends: not copied, for most are never decoded."""
        ledger = self._ledger
        found = []
        end = 0
        while (start := ledger.find(_ENTRY_START, end) + 1) > 0:
            end = ledger.find(b"\n", start)
            found.append((start, end))
        return found

    @cached_property
    def _ops(self) -> list[str | None]:
        """The operation of each left side; None: a variable."""
        found = [_LEFT.search(self._ledger, start, end) for start, end in self._entries]
        return [m[1].decode() if m is not None and m[1] else None for m in found]

    def _rule(self, number: int) -> Rule:
        rule = self._decoded.get(number)
        if rule is None:
            start, end = self._entries[number]
            try:
                rule = _decode(self._ledger[start:end])
            except (ValueError, TypeError, KeyError, RecursionError) as error:
                where = f"{self._ruleset}.* (entry {number + 1} of its ledger)"
                raise EvidenceError(str(Problem(where, f"it is no rule ({error})"))) from None
            if rule.ruleset != self._ruleset:
                where = f"{self._ruleset}.{rule.name}"
                raise EvidenceError(str(Problem(where, "its entry holds another rule")))
            self._decoded[number] = rule
        return rule


# A quote within a string of JSON stands behind a backslash, so that neither is part of a string.
_ENTRY_START = b'\n{"name":'
_RULE_START, _RULE_END = b',"rule":', b',"verdict":'
_LEFT = re.compile(rb'"left":\{(?:"Node":\["(\w+)"|"Var":)')


def _decode(line: bytes) -> Rule:
    """The rule of one line of a ledger that is as it was written."""
    start, end = line.find(_RULE_START), line.find(_RULE_END)
    if 0 <= start < end:
        return check_rule(rule_from_json(json.loads(line[start + len(_RULE_START) : end])))
    return check_rule(rule_from_json(json.loads(line.removesuffix(b","))["rule"]))


def _is_as_written(ruleset: str, source: bytes, ledger: bytes, fingerprint: str) -> bool:
    """Whether the digest of the file is right and its head says that all of this was proven.

    The writer made that digest over entries it had just checked, so that they need no check again.
    """
    start, end = ledger.find(_RULES_PART), ledger.rfind(_DIGEST_PART)
    if len(ledger) > MOST_BYTES or not 0 <= start < end:
        return False
    if ledger[end:] != _digest_line(memoryview(ledger)[:end]):
        return False
    head = _parse(ledger[:start].rstrip().removesuffix(b",") + b"}")
    if not isinstance(head, dict):
        return False
    told = (head.get("format"), head.get("ruleset"), head.get("source"), head.get("fingerprint"))
    wanted = (FORMAT, ruleset, source_digest(source), fingerprint)
    return told == wanted and list(head.get("verdicts", ())) == [PROVED]


def find_problems(
    ruleset: str, source: bytes, ledger: bytes, fingerprint: str
) -> tuple[Problem, ...]:
    """Everything that keeps `ruleset` from being used, in the order of the file."""
    return tuple(_read(ruleset, source, ledger, fingerprint)[1])


def _read(
    ruleset: str, source: bytes, ledger: bytes, fingerprint: str
) -> tuple[list[Rule], list[Problem]]:
    """The rules with evidence, and what is wrong with the others."""
    data = _parse(ledger)
    if isinstance(data, str):
        return [], [Problem(f"{ruleset}.*", data)]
    reason = _wrong_frame(data, ruleset)
    if reason:
        return [], [Problem(f"{ruleset}.*", reason)]
    entries = data["rules"]
    if data["fingerprint"] != fingerprint:
        name = entries[0]["name"] if entries else "*"
        is_proof = meanings_of(data["fingerprint"]) == meanings_of(fingerprint)
        reason = _OTHER_EXECUTION if is_proof else _OTHER_MEANINGS
        return [], [Problem(f"{ruleset}.{name}", reason)]
    rules: list[Rule] = []
    problems = list(_differences(ruleset, source, data))
    for entry in entries:
        try:
            rule = _proven_rule(entry, ruleset, data)
        except (ValueError, TypeError, RecursionError) as error:
            problems.append(
                Problem(f"{ruleset}.{entry['name']}", f"its entry is no rule ({error})")
            )
            continue
        if isinstance(rule, str):
            problems.append(Problem(f"{ruleset}.{entry['name']}", rule))
        else:
            rules.append(rule)
    return rules, problems


def _parse(ledger: bytes) -> dict[str, Any] | str:
    """The JSON object, or why there is none."""
    if len(ledger) > MOST_BYTES:
        return f"its ledger has {len(ledger)} bytes, more than {MOST_BYTES}"
    try:
        data = json.loads(ledger)
    except (ValueError, RecursionError) as error:
        return f"its ledger is no JSON ({error})"
    return data if isinstance(data, dict) else "its ledger is no JSON object"


def _wrong_frame(data: dict[str, Any], ruleset: str) -> str | None:
    """What is wrong with the parts around the entries."""
    if data.get("format") != FORMAT:
        return f"its ledger has format {data.get('format')!r}; this version reads {FORMAT}"
    if data.get("ruleset") != ruleset:
        return f"its ledger is about the set {data.get('ruleset')!r}"
    entries, solvers = data.get("rules"), data.get("solvers")
    texts = (data.get("source"), data.get("fingerprint"))
    if not all(isinstance(text, str) for text in texts) or not isinstance(solvers, dict):
        return "its ledger lacks source, fingerprint or solvers"
    if not isinstance(entries, list) or not all(_is_entry(entry) for entry in entries):
        return f"an entry of its ledger does not have the parts {', '.join(sorted(_ENTRY_PARTS))}"
    return None


def _is_entry(entry: Any) -> bool:
    return (
        isinstance(entry, dict)
        and entry.keys() == _ENTRY_PARTS
        and _is_text(entry["name"])
        and isinstance(entry["rule"], dict)
    )


def _is_evidence(entry: dict[str, Any]) -> bool:
    """Whether what stands beside the rule is what a proof leaves."""
    return (
        all([_is_text(entry[part]) for part in ("verdict", "reason", "key", "seal")])
        and _is_list_of(entry["obligations"], _OBLIGATION)
        and _is_list_of(entry["conditions"], _CONDITION)
        and _is_count(entry["instances"])
    )


def _is_list_of(parts: Any, shape: Mapping[str, Callable[[Any], bool]]) -> bool:
    """Whether `parts` is a list of objects whose parts are as `shape` says."""
    return isinstance(parts, list) and all(
        isinstance(part, dict)
        and part.keys() == shape.keys()
        and all([is_right(part[name]) for name, is_right in shape.items()])
        for part in parts
    )


def _is_text(value: Any) -> bool:
    try:
        check_text(value)
    except ValueError:
        return False
    return True


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 63


def _is_types(value: Any) -> bool:
    return isinstance(value, dict) and all(
        [_is_text(name) and _is_text(dtype) for name, dtype in value.items()]
    )


# What is said of a case that was proved, and of a condition.
_OBLIGATION = {"types": _is_types, "domain": _is_text, "method": _is_text, "goals": _is_text,
               "steps": _is_count}  # fmt: skip
_CONDITION = {"condition": _is_text, "verdict": _is_text, "why": _is_text}


def _differences(ruleset: str, source: bytes, data: dict[str, Any]) -> Iterator[Problem]:
    """Rules of the file that are not those of the ledger, told apart by name and text."""
    text = source.decode("utf-8", errors="replace")
    written = dict(_rule_texts(text))
    names = [entry["name"] for entry in data["rules"]]
    proven = {entry["name"]: entry["rule"].get("text") for entry in data["rules"]}
    found = False
    for name, now in written.items():
        if name not in proven:
            found = True
            yield Problem(f"{ruleset}.{name}", "it is not in the ledger")
        elif now != _plain(str(proven[name])):
            found = True
            yield Problem(f"{ruleset}.{name}", "its text has changed since it was proven")
    for name in [name for name in names if name not in written]:
        found = True
        yield Problem(f"{ruleset}.{name}", "it is in the ledger but not in the file")
    if not found and data["source"] != source_digest(source):
        first = names[0] if names else "*"
        yield Problem(
            f"{ruleset}.{first}",
            "the file has changed since it was proven, outside of the text of its rules",
        )
    elif not found and names != list(written):
        yield Problem(f"{ruleset}.{names[0]}", "the ledger has its rules in another order")


def _rule_texts(text: str) -> Iterator[tuple[str, str]]:
    """Name and text of each rule of a file, without its grammar: an item ends where one begins."""
    for start in _ITEM.finditer(text):
        end = _ITEM_END.search(text, start.end())
        yield start.group(1), _plain(text[start.start() : end.start() if end else len(text)])


def _plain(text: str) -> str:
    """`text` without comments at the ends of lines and with single spaces."""
    lines = [line.partition("#")[0] for line in text.splitlines()]
    return " ".join(" ".join(lines).split())


def _proven_rule(entry: dict[str, Any], ruleset: str, data: dict[str, Any]) -> Rule | str:
    """The rule of an entry, or why the entry is no evidence. Raises: ValueError, TypeError."""
    if not _is_evidence(entry):
        return "its entry has parts that no proof has"
    if entry["seal"] != seal(entry):
        return "its entry was edited by hand (the seal is broken)"
    if entry["key"] != entry_key(entry["rule"], data["fingerprint"], data["solvers"]):
        return "its entry is about another rule, other meanings or other solver versions"
    if entry["verdict"] != PROVED:
        return f"its verdict is {entry['verdict']} ({entry['reason']})"
    if entry["instances"] < 1:
        return "the engine was seen to run it on no instance"
    rule = check_rule(rule_from_json(entry["rule"]))
    if (rule.name, rule.ruleset) != (entry["name"], ruleset):
        return "its entry holds another rule"
    return rule
