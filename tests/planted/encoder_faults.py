"""Faults planted in the encoder and the engine: does the disagreement of proof and execution find them?

    cd tests && python -m planted.encoder_faults [--sample N --seed S] [NAME ...]

prints a table: fault, what found it, seconds. Each fault is planted in a process of its own, which begins with everything
imported and the rules read; there the changed module, and all that import it, are imported again. No file is changed.
Owns: planting, the search. Does not own: the table (encoder_table.py).

For each rule that the table names (a file of tests, or one test, in a few positions), the solver decides one case by the encoder
with the fault, without samples before, and the engine runs instances (verify/agreement). The fault is found if they
disagree: a case is proved that is executed otherwise, or one that is executed rightly is not proved. Without a fault they
agree on each of the rules, and the tests pass (`silent_rules`).
"""

from __future__ import annotations

import argparse
import importlib
import os
import re
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from functools import cache
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from types import CodeType
from typing import Any

from planted.encoder_table import FAULTS, WRONG, Fault

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 240  # for one fault on a busy machine
MOST_STEPS = 2_000_000  # of the solver for the first way that proves a case
FEW_STEPS = 200_000  # for every other way
NOT_REPRODUCED = "could not be reproduced"  # values for which the encoder and the reference differ
_USED = (
    "verify.agreement.agree",
    "verify.prove.case",
    "verify.prove.portfolio",
    "verify.prove.solve",
)
_IMPORT = re.compile(r"^\s*from (proofgrad[\w.]*) import (\([^)]*\)|.*)", re.MULTILINE)


@cache
def prepare() -> None:
    """Import all that a search needs, and read the rules: processes that begin now share that."""
    parser = importlib.import_module("proofgrad.verify.dsl.parser")
    parser.parse_rules = cache(parser.parse_rules)  # a rule is data, whatever reads it later
    for name in _USED:
        importlib.import_module(f"proofgrad.{name}")
    importlib.import_module("proofgrad.verify.agreement.library").read_facts()


def plant(fault: Fault) -> None:
    """Let the module of the fault, and all that import it, be imported with the fault."""
    planted = Planted(fault)
    sys.meta_path.insert(0, planted)
    for name in users_of(planted.name):
        package, _, single = name.rpartition(".")
        del sys.modules[name]
        delattr(sys.modules[package], single)


def users_of(module: str) -> list[str]:
    """The modules in memory that import a module, themselves or through others; and it."""
    imported = {name: _imports(name) for name in sys.modules if name.startswith("proofgrad.")}
    found = {module} & imported.keys()
    while True:
        more = {
            n for n, names in imported.items() if n not in found and not found.isdisjoint(names)
        }
        if not more:
            return sorted(found)
        found |= more


@cache
def _imports(name: str) -> frozenset[str]:
    path = getattr(sys.modules[name], "__file__", None)
    if path is None:
        return frozenset()
    found = _IMPORT.findall(Path(path).read_text())
    parts = [f"{package}.{part}" for package, names in found for part in re.findall(r"\w+", names)]
    return frozenset([*parts, *[package for package, _ in found]])


class Planted(MetaPathFinder):
    """Loads the file of a fault with the fault in it."""

    def __init__(self, fault: Fault) -> None:
        self.name = "proofgrad." + fault.file.removesuffix(".py").replace("/", ".")
        self.fault = fault

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        """The module with its source changed, if it is that one."""
        if name != self.name:
            return None
        spec = PathFinder.find_spec(name, path)
        assert spec is not None and spec.origin is not None
        spec.loader = _Changed(name, spec.origin, self.fault)
        return spec


class _Changed(SourceFileLoader):
    def __init__(self, name: str, path: str, fault: Fault) -> None:
        super().__init__(name, path)
        self.fault = fault

    def get_code(self, fullname: str) -> CodeType:
        """Compiled anew: what is kept of the file is without the fault."""
        source = Path(self.path).read_text()
        assert self.fault.before in source, f"{self.fault.name}: not in {self.fault.file}"
        changed = source.replace(self.fault.before, self.fault.after, 1)
        return compile(changed, self.path, "exec")


def find(fault: Fault | None, names: Sequence[str]) -> str | None:
    """By which rule a fault is found, and how; None if proof and execution agree on all of `names`."""
    if fault is not None:
        plant(fault)
    for name in names:
        rule = None if is_test(name) else rule_named(name)
        try:
            told = _failure(name) if rule is None else _disagreement(*rule)
        except Exception as error:  # whatever breaks is seen
            told = f"{type(error).__name__}: {error}"
        if told is not None:
            return f"{name}: {told.splitlines()[0][:90]}"
    return None


def is_test(name: str) -> bool:
    """Whether that is a file of tests or a test of one, and no rule."""
    return name.partition("::")[0].endswith(".py")


def _failure(name: str) -> str | None:
    """Whether tests fail."""
    import pytest

    # The options of pyproject.toml are those of another plugin, too.
    options = ["-q", "-x", "-o", "addopts=", "-p", "no:cacheprovider", "-p", "no:xdist"]
    with open(os.devnull, "w") as nothing, redirect_stdout(nothing):
        status = pytest.main([*options, str(ROOT / "tests" / name)])
    if status not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        raise SystemExit(f"{name} cannot be run: {status!r}")  # which finds nothing
    return None if status == pytest.ExitCode.OK else "fails"


def _disagreement(rule: Any, type_names: Sequence[str]) -> str | None:
    """How proof and execution of the first case of a rule with these types disagree."""
    from proofgrad.verify.agreement.agree import agreement, used_cases

    claimed = [
        case
        for case in used_cases(rule)
        if not type_names
        or [t.name for _, t in case.types] == type_names
        or (len(type_names) == 1 and case.domain == type_names[0])
    ]
    case = claimed[0]
    proves, refutes = _ways(case)
    found = agreement(rule, [case])
    if proves and not found.is_met:
        return f"proved by {proves}, but {found.reason}"
    if found.is_met and (refutes or not proves):
        return f"not proved{refutes and f' by {refutes}'}, but {found.instances} instances agree"
    return None


def rule_named(name: str) -> tuple[Any, list[str]]:
    """A rule and the types that stand after it. Raises: StopIteration if there is none."""
    from proofgrad.rules.library import rule_file
    from proofgrad.verify.dsl.parser import parse_rules

    if name in WRONG:
        (rule,) = parse_rules(WRONG[name], check_order=False).rules
        return rule, []
    full_name, _, types = name.partition("@")
    ruleset, _, single = full_name.partition(".")
    rules = parse_rules(rule_file(ruleset).read_text(), check_order=False).rules
    return next(r for r in rules if r.name == single), types.split(",") if types else []


def _ways(case: Any) -> tuple[str, str]:
    """A way by which the solver proves a case, and one by which it finds values where it fails.

    Samples are not asked before. All ways are tried that take few steps, for a fault may be in one of them.
    """
    from proofgrad.verify.prove import case as prove_case
    from proofgrad.verify.prove.portfolio import attempts
    from proofgrad.verify.prove.solve import PROVED, REFUTED

    proves = refutes = ""
    for attempt in attempts(case):
        most_steps = min(attempt.most_steps, FEW_STEPS if proves else MOST_STEPS)
        tried = prove_case._try(case, replace(attempt, most_steps=most_steps))
        if tried.verdict == PROVED:
            proves = proves or attempt.method
        elif tried.verdict == REFUTED or NOT_REPRODUCED in tried.reason:
            refutes = refutes or attempt.method
    return proves, refutes


# -- all of them --------------------------------------------------------------------------------------


def _search(fault: Fault | None, names: Sequence[str], answers: Connection) -> None:
    start = time.process_time()
    found = find(fault, names)
    answers.send((found, time.process_time() - start))


def found_by(fault: Fault | None, names: Sequence[str]) -> tuple[str | None, float]:
    """By what a fault is found in a process of its own, and the seconds that it computed."""
    prepare()
    for name in names:
        if not is_test(name):
            rule_named(name)
    context = get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_search, args=(fault, names, sender))
    process.start()
    try:
        if receiver.poll(SECONDS):
            return receiver.recv()  # type: ignore[no-any-return]
        return None, float(SECONDS)
    finally:
        process.kill()
        process.join()


def chosen(names: Sequence[str], sample: int | None, seed: int) -> list[Fault]:
    """The faults of these names, or some of all."""
    if sample is not None:
        return Random(seed).sample(FAULTS, sample)
    return [fault for fault in FAULTS if not names or fault.name in names]


def silent_rules(names: Sequence[str]) -> list[str]:
    """Of these rules and tests, those that find something without a fault: there should be none."""
    found = [found_by(None, [name])[0] for name in names]
    return [told for told in found if told is not None]


def report(faults: Sequence[Fault]) -> Iterator[tuple[Fault, str | None, float]]:
    """Each fault, what found it, and seconds."""
    for fault in faults:
        yield fault, *found_by(fault, fault.rules)


def main() -> int:
    """Print the table; 1 if a fault was not found."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--sample", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--without", action="store_true", help="plant none: nothing may be found")
    arguments = parser.parse_args()
    os.environ.setdefault("PROOFGRAD_CACHE", "0")
    faults = chosen(arguments.names, arguments.sample, arguments.seed)
    if arguments.without:
        names = sorted({name for fault in faults for name in fault.rules})
        silent = silent_rules(names)
        print("\n".join([*silent, f"{len(silent)} of {len(names)} find something without a fault"]))
        return 1 if silent else 0
    missed = 0
    for fault, told, seconds in report(faults):
        missed += told is None
        print(f"{fault.file:30} {fault.name:34} {seconds:5.1f} s  {told or 'MISSED'}", flush=True)
    print(f"{len(faults) - missed} of {len(faults)} faults found")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
