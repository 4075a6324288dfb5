"""Processes that share work: every result arrives, and a death or Ctrl-C ends all with a word."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import deque
from pathlib import Path

import pytest

from proofgrad.core.rewrite.rule import Rule
from proofgrad.verify.dsl.parser import parse_rules
from proofgrad.verify.encode.types import Case
from proofgrad.verify.prove import rules as prove
from proofgrad.verify.prove.case import Decision, decide
from proofgrad.verify.prove.rules import Result, prove_rules
from proofgrad.verify.prove.workers import TimeIsUp, WorkerDied, Workers

RULES = "ruleset t over int\nrule one: x + 0 => x\nrule two: x * 1 => x\n"


def rules() -> tuple[Rule, ...]:
    return parse_rules(RULES).rules


def die_at_four(number: int) -> int:
    if number == 4:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def fail_at_four(number: int) -> int:
    if number == 4:
        raise ValueError("four")
    return number


def die_at_two(case: Case, *rest: object) -> Decision:
    if case.rule.name == "two":
        os.kill(os.getpid(), signal.SIGKILL)
    return decide(case, *rest)  # type: ignore[arg-type]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_every_result_arrives_once(count: int) -> None:
    with Workers(count) as workers:
        for _ in range(2):
            found = sorted(workers.each(abs, range(-9, 0), str))
            assert found == [(-k, k) for k in range(9, 0, -1)]


@pytest.mark.parametrize("count", [1, 2])
def test_work_ends_when_its_time_is_up_whatever_it_is_doing(count: int) -> None:
    """A solver may look for an answer for as long as it is let; Python does not see the time meanwhile."""
    start = time.monotonic()
    with pytest.raises(TimeIsUp), Workers(count) as workers:
        for _ in workers.each(time.sleep, [600], str, until=start + 0.1):
            pass
    assert time.monotonic() - start < 60


@pytest.mark.parametrize("count", [1, 2])
def test_tasks_that_are_added_meanwhile_are_done(count: int) -> None:
    waiting = deque([-1])
    with Workers(count) as workers:
        for task, _ in workers.each(abs, waiting, str):
            waiting += [task - 1, task - 2] if task > -5 else []
    assert not waiting


def test_a_dead_process_is_an_error_that_names_its_work() -> None:
    with pytest.raises(WorkerDied, match=r"worked on .*\b4\b.*--jobs 1"), Workers(2) as workers:
        list(workers.each(die_at_four, range(9), str))


def test_what_the_work_raises_is_raised() -> None:
    with pytest.raises(ValueError, match="four"), Workers(2) as workers:
        list(workers.each(fail_at_four, range(9), str))


def test_a_verdict_is_told_before_later_rules_are_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []

    def note(case: Case, *rest: object) -> Decision:
        told.append(case.rule.name)
        return decide(case, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(prove, "decide", note)
    prove_rules(rules(), 1, on_result=lambda r: told.append(f"{r.rule.name} {r.verdict}"))
    assert list(dict.fromkeys(told)) == ["one", "one proved", "two", "two proved"]


@pytest.mark.parametrize("processes", [1, 2])
def test_verdicts_are_told_in_the_order_of_the_file(processes: int) -> None:
    text = (
        "ruleset t over int\nrule a: x + 0 => x\nrule b: x + 1 => x\nrule c over bool: p & p => p\n"
    )
    claimed = parse_rules(text).rules
    told: list[Result] = []
    results = prove_rules(claimed, processes, on_result=told.append)
    assert told == results
    assert [r.rule.name for r in told] == ["a", "b", "c"]


def test_a_dead_prover_names_the_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prove, "decide", die_at_two)
    with pytest.raises(WorkerDied, match=r"t\.two over int \(T=int8\)"):
        prove_rules(rules(), processes=2)


TELL = "os.write(1, b'go\\n')"


@pytest.mark.skipif(os.name != "posix", reason="signals")
@pytest.mark.parametrize(("at_start", "at_work"), [(TELL, "None"), ("None", TELL)])
def test_interrupting_all_processes_of_a_run_ends_it_quietly(
    tmp_path: Path, at_start: str, at_work: str
) -> None:
    """While its processes are being started, and once they work."""
    file = tmp_path / "slow.rules"
    file.write_text(RULES)
    program = (
        "import os, sys, time; from proofgrad.verify.prove import rules as prove, workers;"
        "from proofgrad.verify.cli import main; begin = workers._begin;"
        f"workers._begin = lambda parent: ({at_start}, begin(parent));"
        f"prove.decide = lambda *_: ({at_work}, time.sleep(600));"
        f"sys.exit(main([{str(file)!r}, '-j', '2']))"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as running:
        assert running.stdout is not None and running.stderr is not None
        assert running.stdout.readline() == b"go\n"
        os.killpg(running.pid, signal.SIGINT)  # as a terminal does
        assert running.wait(timeout=120) == 130  # the work would take ten minutes
        told = running.stderr.read().decode()
        with pytest.raises(ProcessLookupError):
            os.killpg(running.pid, 0)  # nobody is left
    assert "stopped" in told and "Traceback" not in told
