"""Checks that any machine can run: is it the machine that the compiler believes it to be?

    python -m proofgrad.testing.backend CPU
    python -m proofgrad.testing.backend --table REFERENCE CPU CL CUDA

Owns: the command, the list of checks, what is told of them. Does not own: the checks (conformance/). Each is a small program
that runs on the machine; its results are those of numpy or of REFERENCE, which runs kernels in plain Python. Where the machine
is not here, kernels are compiled and none is run, so nothing has passed: that is said, and the status is 2. The members that a
backend leaves out are named with what is lost.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence

from proofgrad import Device
from proofgrad.core.compile.machine.target import LOST_WITHOUT, DeviceError, left_out
from proofgrad.testing.conformance import elements, machine, programs
from proofgrad.testing.conformance.check import Check, Options, Report, run_check

CHECKS: tuple[Check, ...] = (*machine.FIRST, *elements.CHECKS, *programs.CHECKS, *machine.CHECKS)
MOST_TOLD = 72  # letters of what a machine is
EVERY = 1 << 30  # differing elements of a result: all of them


def run(name: str, options: Options = Options(), only: Sequence[str] = ()) -> Iterator[Report]:
    """What each check of the machine comes to; `only` those of these names, unless there are none.

    Raises: DeviceError if there is no such machine here.
    """
    device = Device.canonical(name)
    target = Device[device].target
    for check in CHECKS:
        if not only or check.name in only:
            yield run_check(check, device, target, options)


def main(arguments: list[str]) -> int:
    """Print what each check came to; 0 if all passed, 1 if some failed, 2 if nothing was run on some machine."""
    asked = _parsed(arguments)
    if asked is None:
        return 2
    options = Options(asked.long, asked.quick, EVERY if asked.all else Options().shown)
    told = [_one(name, options, asked.only) for name in asked.machines]
    if asked.table or len(told) > 1:
        print(_table([row for row, _ in told if row]))
    return max([status for _, status in told], key=[0, 2, 1].index)


def _parsed(arguments: list[str]) -> argparse.Namespace | None:
    parser = argparse.ArgumentParser("python -m proofgrad.testing.backend", exit_on_error=False)
    parser.add_argument("machines", nargs="+", metavar="NAME", help="a device, as CPU or CUDA:1")
    parser.add_argument("--only", action="append", default=[], choices=[c.name for c in CHECKS])
    parser.add_argument("--long", action="store_true", help="what takes minutes or gigabytes too")
    parser.add_argument("--quick", action="store_true", help="one in four of many results alike")
    parser.add_argument("--all", action="store_true", help="every element that differs")
    parser.add_argument("--table", action="store_true", help="a table of the machines at the end")
    try:
        return parser.parse_args(arguments)
    except SystemExit as error:
        if not error.code:
            raise  # --help
        return None
    except argparse.ArgumentError as error:
        print(error, file=sys.stderr)
        return None


def _one(name: str, options: Options, only: Sequence[str]) -> tuple[str, int]:
    """Run the checks of one machine and tell of them: its row of the table, its status."""
    start = time.perf_counter()
    reports: list[Report] = []
    try:
        device = Device.canonical(name)
        backend = Device[device]
        print(f"{device}: {(backend.identity or type(backend).__name__)[:MOST_TOLD]}")
        for report in run(name, options, only):
            reports.append(report)
            print(f"{report.name:<14} {report.line}", flush=True)
            for problem in report.failed:
                print(f"    {problem}")
    except DeviceError as error:
        print(error, file=sys.stderr)
        return f"| {name} | nothing was run: {' '.join(str(error).split())[:80]} | | |", 2
    _tell_skipped(reports)
    seconds = time.perf_counter() - start
    print(_verdict(device, backend.target.runs, reports, seconds))
    for member in left_out(backend):
        print(f"no {member}: {LOST_WITHOUT[member]}")
    failed = sum([len(report.failed) for report in reports])
    return _row(
        device, backend.target.runs, reports
    ), 1 if failed else 0 if backend.target.runs else 2


def _tell_skipped(reports: Sequence[Report]) -> None:
    reasons: Counter[str] = Counter()
    for report in reports:
        reasons.update(report.skipped)
    for reason, count in sorted(reasons.items(), key=lambda pair: -pair[1]):
        print(f"{count} skipped: {reason}")


def _counts(reports: Sequence[Report]) -> tuple[int, int, int, int]:
    return (
        sum([report.passed for report in reports]),
        sum([len(report.failed) for report in reports]),
        sum([sum(report.skipped.values()) for report in reports]),
        sum([report.compiled for report in reports]),
    )


def _verdict(device: str, runs: bool, reports: Sequence[Report], seconds: float) -> str:
    passed, failed, skipped, compiled = _counts(reports)
    if runs:
        return f"{device}: {passed} passed, {failed} failed, {skipped} skipped in {seconds:.0f} s"
    return (
        f"nothing was run: {device} is not on this machine. The kernels of {compiled} results compile, those of"
        f" {failed} do not; whether their values are right is not known"
    )


def _row(device: str, runs: bool, reports: Sequence[Report]) -> str:
    passed, failed, skipped, _ = _counts(reports)
    if not runs:
        return f"| {device} | nothing was run | {failed} | |"
    return f"| {device} | {passed} | {failed} | {skipped} |"


def _table(rows: Sequence[str]) -> str:
    return "\n".join(["| machine | passed | failed | skipped |", "|---|---|---|---|", *rows])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
