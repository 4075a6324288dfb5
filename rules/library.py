"""The rules that the compiler runs: which files, with which evidence.

Owns: the list of files whose bytes give rules their meaning and execute them (the fingerprint), loading. Does not
own: the gate itself (core/rewrite/ledger.py), the stages that use the sets (pipeline.py).

A set is rules/NAME.rules with its evidence in proofs/NAME.json. There is no other way in.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from hashlib import sha256
from os import listdir
from pathlib import Path

from proofgrad.core.rewrite.ledger import COMMAND, EvidenceError, open_ledger
from proofgrad.core.rewrite.match import RuleSet
from proofgrad.rules.additions import MARK, added_in, check_only_adds, without

ROOT = Path(__file__).resolve().parent.parent
RULES = ROOT / "rules"
PROOFS = ROOT / "proofs"
SUFFIX = ".rules"
LOOSE = "fastmath_"  # the names of sets whose laws are not exact to the bit begin so
WINOGRAD = f"{LOOSE}winograd"  # no stage has it: conv2d makes a program of its law
# Facts about values come from these sets, bounds from the first; gradients from the other. A gradient needs no stage.
FACTS = ("bounds", "bits", "divisor", "finite", "not_nan")
COTANGENTS = "cotangent"

# What a proof depends on beside the rule and the solver: all proofs are made again where it changes.
# Under verify/ it is every file of the folders that turn a rule into an obligation and decide one.
MEANINGS = (
    "core/ir/ops.py",
    "core/ir/dtypes.py",
    "core/ir/evaluate.py",
    "core/rewrite/rule.py",
    "core/rewrite/functions.py",
    "core/rewrite/scope.py",
    "core/rewrite/sorts.py",
    "core/rewrite/extractors.py",
)
MEANING_FOLDERS = ("verify/encode", "verify/prove")
# What decides what a rule does once it is admitted, and what is tried of that: every file of these folders.
EXECUTION = ("core/ir", "core/rewrite", "verify/agreement")


def library_names() -> tuple[str, ...]:
    """The names of all sets, sorted."""
    names = [name for name in listdir(RULES) if name.endswith(SUFFIX)]
    return tuple(sorted([name.removesuffix(SUFFIX) for name in names]))


def rule_file(name: str) -> Path:
    """Where the rules of a set are written."""
    return RULES / f"{name}{SUFFIX}"


def ledger_file(name: str) -> Path:
    """Where the evidence of a set lies."""
    return PROOFS / f"{name}.json"


def meaning_files() -> tuple[Path, ...]:
    """The files on which proofs depend."""
    return (*[ROOT / name for name in MEANINGS], *_files_of(MEANING_FOLDERS))


def execution_files() -> tuple[Path, ...]:
    """The files that decide what an admitted rule does."""
    return _files_of(EXECUTION)


def _files_of(folders: Iterable[str]) -> tuple[Path, ...]:
    return tuple(
        [
            ROOT / folder / name
            for folder in folders
            for name in sorted(listdir(ROOT / folder))
            if name.endswith(".py")
        ]
    )


class Meanings:
    """The files that give rules their meaning and execute them, as they are now.

    Raises: AdditionError if lines that are marked as those of a new operation do more than add it.
    """

    def __init__(self) -> None:
        self._proofs, self._execution = [_contents(f) for f in (meaning_files(), execution_files())]
        self._added: frozenset[str] = frozenset()
        for name, content in {**self._proofs, **self._execution}.items():
            if MARK in content:
                check_only_adds(name, content)
                self._added |= added_in(content)
        self._known: dict[frozenset[str], str] = {}

    def of(self, rules: bytes | None) -> str:
        """Two digests, with a "/" between: of what proofs depend on, and of what executes rules.

        `rules`: those it is about, as in a ledger. The lines of operations that are being added count if
        the rules name one of them, or are None: one may be made of another.
        """
        names_one = rules is None or any([f'"{op}"'.encode() in rules for op in self._added])
        left_out = frozenset() if names_one else self._added
        if left_out not in self._known:
            files = [self._proofs, self._execution]
            self._known[left_out] = "/".join([_digest_of(part, left_out) for part in files])
        return self._known[left_out]


def fingerprint() -> str:
    """The fingerprint of rules that may name every operation."""
    return Meanings().of(None)


def _contents(files: Iterable[Path]) -> dict[str, bytes]:
    return {path.relative_to(ROOT).as_posix(): path.read_bytes() for path in files}


def _digest_of(files: Mapping[str, bytes], left_out: Collection[str]) -> str:
    digest = sha256()
    for name, whole in files.items():
        content = without(whole, left_out)
        digest.update(f"{name} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()


def load_library() -> dict[str, RuleSet]:
    """Every exact set with fresh evidence for each of its rules. Raises: EvidenceError."""
    meanings = Meanings()
    names = [name for name in library_names() if not name.startswith(LOOSE)]
    return {name: load_set(name, meanings) for name in names}


def asked_for_by(name: str) -> str:
    """What has to be set for a loose set to be used."""
    return "WINO=1" if name == WINOGRAD else f"FASTMATH={name.removeprefix(LOOSE)}"


def load_loose(name: str) -> RuleSet:
    """A loose set by the end of its name, as "real", proven in its class. Raises: EvidenceError."""
    return load_set(f"{LOOSE}{name}", Meanings())


def load_set(name: str, meanings: Meanings) -> RuleSet:
    """One set of the library. Raises: EvidenceError."""
    source = rule_file(name).read_bytes()
    try:
        ledger = ledger_file(name).read_bytes()
    except (FileNotFoundError, IsADirectoryError) as error:
        there = "no ledger" if isinstance(error, FileNotFoundError) else "a folder, and no ledger,"
        raise EvidenceError(
            f"rule {name}.* may not be used: there is {there} {ledger_file(name).name} in"
            f" proofs/; run `{COMMAND}`"
        ) from None
    return RuleSet(name, open_ledger(name, source, ledger, meanings.of(ledger)), proven=True)
