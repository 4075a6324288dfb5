"""What a check consists of, and running it: results beside what they must be, actions that must not fail, what is left out.

Owns: `Check`, `Result`, `Action`, `Skip`, `Report`, `run_check`. Does not own: which checks there are.

A check is a function of a device that yields items. A result without an expected array is compared with that of the same
program on REFERENCE, which runs kernels in plain Python.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

from proofgrad import Tensor
from proofgrad.core.compile.machine.target import CompileError, DeviceError, Target
from proofgrad.core.tensor.runtime.realize import compile_only
from proofgrad.testing.conformance.differences import BITS, SHOWN, Exactness, differences

ORACLE = "REFERENCE"
QUICK_SHARE = 4
TOGETHER = 32  # results that are computed in one call, as long as none raises


@dataclass(slots=True)
class Result:
    """A Tensor, what it must be, and how exactly. `expected` None: what REFERENCE computes."""

    label: str
    tensor: Tensor
    expected: Any = None
    exactness: Exactness = BITS


@dataclass(slots=True)
class Action:
    """Something to do on the machine. Raises AssertionError, saying what is wrong."""

    label: str
    run: Callable[[], None]


@dataclass(slots=True)
class Skip:
    """What is not run, and why."""

    label: str
    reason: str


Item = Result | Action | Skip


def unpromised_reason(target: Target) -> str:
    """Why something of floats is left out on a machine; "" if nothing is."""
    lost = ", ".join(target.unpromised)
    return f"the machine does not keep {lost}" if lost else ""


@dataclass(frozen=True, slots=True)
class Options:
    """What is asked of a run. `is_long`: also what takes minutes or gigabytes. `is_quick`: of many results alike one in
    four, for machines whose compiler is slow. `shown`: differing elements of a result.
    """

    is_long: bool = False
    is_quick: bool = False
    shown: int = SHOWN


Program = Callable[[str, Target, Options], Iterator[Item]]


@dataclass(frozen=True, slots=True)
class Check:
    """A name and what it yields."""

    name: str
    program: Program
    has_many_alike: bool = False  # one operation, type and edge after the other


@dataclass(slots=True)
class Report:
    """What a check came to."""

    name: str
    passed: int = 0
    compiled: int = 0  # and not run: the machine is not here
    failed: list[str] = field(default_factory=list)  # each with its label
    skipped: Counter[str] = field(default_factory=Counter)  # reasons

    def fail(self, label: str, problem: str) -> None:
        """One result is wrong."""
        self.failed.append(f"{label}: {problem}")

    @property
    def line(self) -> str:
        """`7 passed, 1 failed, 2 skipped`"""
        counts = {
            "passed": self.passed,
            "compiled, not run": self.compiled,
            "failed": len(self.failed),
            "skipped": sum(self.skipped.values()),
        }
        told = [f"{n} {word}" for word, n in counts.items() if n]
        return ", ".join(told) or "nothing"


def run_check(check: Check, device: str, target: Target, options: Options) -> Report:
    """Run one check on one device."""
    report = Report(check.name)
    results: list[Result] = []
    try:
        for item in check.program(device, target, options):
            match item:
                case Skip():
                    report.skipped[item.reason] += 1
                case Action():
                    _act(report, item, target)
                case Result():
                    results.append(item)
    except Exception as error:  # a machine may raise anything
        report.fail("while it is made", _told(error))
    if options.is_quick and check.has_many_alike:
        left_out = len(results) - len(results[::QUICK_SHARE])
        results = results[::QUICK_SHARE]
        report.skipped["--quick leaves them out"] += left_out
    oracle = _Oracle(check, target, options, {result.label for result in results})
    for start in range(0, len(results), TOGETHER):
        _compare(report, results[start : start + TOGETHER], oracle, device, target, options)
    return report


class _Oracle:
    """What REFERENCE computes for a check, when it is first asked for."""

    def __init__(
        self, check: Check, target: Target, options: Options, labels: Collection[str]
    ) -> None:
        self._arguments, self._labels = (check, target, options), labels
        self._results: dict[str, Tensor] | None = None

    def expected(self, label: str) -> Any:
        """The array for a result."""
        if self._results is None:
            check, target, options = self._arguments
            items = check.program(ORACLE, target, options)
            made = [item for item in items if isinstance(item, Result) and item.expected is None]
            self._results = {item.label: item.tensor for item in made if item.label in self._labels}
            Tensor.realize(*self._results.values())
        return self._results[label].numpy()


def _act(report: Report, action: Action, target: Target) -> None:
    if not target.runs:
        report.skipped["the machine is not here"] += 1
        return
    try:
        action.run()
    except AssertionError as error:
        report.fail(action.label, str(error) or "an assertion failed")
    except Exception as error:
        report.fail(action.label, _told(error))
    else:
        report.passed += 1


def _compare(
    report: Report,
    results: list[Result],
    oracle: _Oracle,
    device: str,
    target: Target,
    options: Options,
) -> None:
    """Compute results together; if that raises, one by one."""
    wanted = []
    for result in results:
        if result.expected is None and device == ORACLE:
            report.skipped["REFERENCE is what it would be compared with"] += 1
        else:
            wanted.append(result)
    try:
        _realize([result.tensor for result in wanted], target)
    except Exception as error:
        if len(wanted) == 1:
            report.fail(wanted[0].label, _told(error))
            return
        for result in wanted:
            _compare(report, [result], oracle, device, target, options)
        return
    for result in wanted:
        if not target.runs:
            report.compiled += 1
            continue
        expected = result.expected if result.expected is not None else oracle.expected(result.label)
        dtype = result.tensor.dtype
        problem = differences(
            result.tensor.numpy(), expected, dtype, result.exactness, options.shown
        )
        if not problem:
            report.passed += 1
        elif _is_unpromised(result, expected, target):
            report.skipped[f"{unpromised_reason(target)}, and the result has some"] += 1
        else:
            report.fail(result.label, problem)


def _is_unpromised(result: Result, expected: Any, target: Target) -> bool:
    """Whether a result that differs does so only in what the machine does not keep."""
    if not target.unpromised:
        return False
    found, dtype = result.tensor.numpy(), result.tensor.dtype
    return not differences(found, expected, dtype, result.exactness, unpromised=target.unpromised)


def _realize(tensors: list[Tensor], target: Target) -> None:
    if not tensors:
        return
    if target.runs:
        Tensor.realize(*tensors)
        return
    with compile_only():
        Tensor.realize(*tensors)


def _told(error: Exception) -> str:
    is_known = isinstance(error, (CompileError, DeviceError))
    lines = [line for line in str(error).splitlines() if line.strip()]
    text = " / ".join(lines[:3]) if is_known else " / ".join(lines[:1])
    return f"{type(error).__name__}: {text[:400]}"
