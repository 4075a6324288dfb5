"""Faults planted in the encoder and the engine: does the disagreement of proof and execution find them?

    cd tests && python -m planted.encoder_faults [--sample N --seed S] [NAME ...]

prints a table: fault, what found it, seconds. Each fault is planted by an import hook in a process of its own; no file is
changed. Owns: planting, the search. Does not own: the table (encoder_table.py).

For each rule that the table names (a file of tests in a few places), the solver decides one case by the encoder with the fault, without samples before, and the engine
runs instances (verify/agreement). The fault is found if they disagree: a case is proved that is executed
otherwise, or one that is executed rightly is not proved.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from types import CodeType
from typing import Any

from planted.encoder_table import FAULTS, SEEN, WRONG, Fault

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 240  # for one fault on a busy machine
MOST_STEPS = 8_000_000  # of the solver for the first way that proves a case
FEW_STEPS = 400_000  # for every other way
NOT_REPRODUCED = "could not be reproduced"  # values for which the encoder and the reference differ


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
        sys.meta_path.insert(0, Planted(fault))
    for name in names:
        try:
            told = _failure(name) if name.endswith(".py") else _disagreement(name)
        except Exception as error:  # whatever breaks is seen
            told = f"{type(error).__name__}: {error}"
        if told is not None:
            return f"{name}: {told.splitlines()[0][:90]}"
    return None


def _failure(name: str) -> str | None:
    """Whether a file of tests fails."""
    import pytest

    options = ["-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist"]
    return None if pytest.main([*options, str(ROOT / "tests" / name)]) == 0 else "fails"


def _disagreement(name: str) -> str | None:
    """How proof and execution of a rule disagree."""
    from proofgrad.verify.agreement.agree import agreement, used_cases

    rule, type_names = _rule(name)
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


def _rule(name: str) -> tuple[Any, list[str]]:
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
    from proofgrad.verify import prove_case
    from proofgrad.verify.portfolio import attempts
    from proofgrad.verify.solve import PROVED, REFUTED

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
    import lark  # noqa: F401  (so that each process need not read them)
    import z3  # noqa: F401

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
    """The faults of these names, or some of those that were seen to be found."""
    if sample is not None:
        return Random(seed).sample(SEEN, sample)
    return [fault for fault in FAULTS if not names or fault.name in names]


def silent_rules(faults: Sequence[Fault]) -> list[str]:
    """Rules on which proof and execution disagree without a fault: there should be none."""
    named = {name for fault in faults for name in fault.rules} - WRONG.keys()
    names = sorted([name for name in named if not name.endswith(".py")])
    found, _ = found_by(None, names)
    return [] if found is None else [found]


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
    arguments = parser.parse_args()
    os.environ.setdefault("PROOFGRAD_CACHE", "0")
    faults = chosen(arguments.names, arguments.sample, arguments.seed)
    missed = 0
    for fault, told, seconds in report(faults):
        missed += told is None
        print(f"{fault.file:30} {fault.name:34} {seconds:5.1f} s  {told or 'MISSED'}", flush=True)
    print(f"{len(faults) - missed} of {len(faults)} faults found")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
