"""Processes that share work: every result arrives, and a death or Ctrl-C ends all with a word."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from proofgrad.core.rewrite.rule import Rule
from proofgrad.verify.dsl.parser import parse_rules
from proofgrad.verify.encode.types import Case
from proofgrad.verify.prove import rules as prove
from proofgrad.verify.prove import shares
from proofgrad.verify.prove.case import Decision, decide
from proofgrad.verify.prove.rules import Result, prove_rules
from proofgrad.verify.prove.workers import LATE, TimeIsUp, WorkerDied, Workers

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
        for _ in workers.each_in_time(time.sleep, [600], str, start + 0.1, lambda _: 600):
            pass
    assert time.monotonic() - start < 60


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_task_that_takes_too_long_is_late_and_the_others_are_done(count: int) -> None:
    until = time.monotonic() + 600
    most = {600.0: 0.1}
    with Workers(count) as workers:
        found = list(
            workers.each_in_time(
                time.sleep, [0.0, 600.0, 0.0, 600.0, 0.0], str, until, lambda t: most.get(t, 600)
            )
        )
    assert sorted(found, key=str) == [(0.0, None)] * 3 + [(600.0, LATE)] * 2


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


def sleep_at(name: str, seconds: float = 600.0) -> Callable[..., Decision]:
    def decided(case: Case, *rest: Any) -> Decision:
        if case.rule.name == name:
            time.sleep(seconds)
        return decide(case, *rest)

    return decided


SLOW = "ruleset t over int8\nrule slow: x * 2 => x + x\nrule wrong: x + 1 => x\nrule right: x * 1 => x\n"


@pytest.mark.parametrize("processes", [1, 2])
def test_a_rule_that_takes_all_its_time_leaves_the_others_theirs(
    processes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shares, "LEAST_SECONDS", 0.0)
    monkeypatch.setattr(prove, "decide", sleep_at("slow"))
    claimed = parse_rules(SLOW, check_order=False).rules
    results = prove_rules(claimed, processes, until=time.monotonic() + 8)
    assert [r.verdict for r in results] == ["unknown", "refuted", "proved"]
    assert results[0].is_out_of_time and "--seconds" in results[0].reason


def test_a_rule_that_was_put_off_is_decided_in_what_the_others_leave(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of 300 seconds each of three rules may have 100 at first; here, so that the test is short, a few hundredths."""
    monkeypatch.setattr(shares.Shares, "_share", lambda self, _: next(given))
    monkeypatch.setattr(prove, "decide", sleep_at("slow", 1.0))
    given = iter([0.5, *[300.0] * 9])
    claimed = parse_rules(SLOW, check_order=False).rules
    results = prove_rules(claimed, 1, until=time.monotonic() + 300)
    assert [r.verdict for r in results] == ["proved", "refuted", "proved"]


def test_each_rule_gets_what_all_would_that_are_not_decided(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    for processes, undecided, expected in ((1, 5, 20.0), (2, 5, 100 / 3), (8, 5, 100.0)):
        assert shares.Shares(now + 100, processes).left(0, undecided) == pytest.approx(expected)
    of_two = shares.Shares(now + 100, 1)
    assert of_two.left(0, 2) == 50
    now += 30
    assert (of_two.left(0, 2), of_two.left(1, 2)) == (20, 35)
    of_two.put_off(0)
    assert of_two.left(0, 1) == 70
    assert shares.Shares(now + 1, 1).left(0, 1000) == shares.LEAST_SECONDS


def test_a_rule_known_to_be_wrong_when_its_time_is_up_is_refuted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The values at which it fails may be what is looked for so long."""
    monkeypatch.setattr(prove, "refuted_by_values", lambda *_: time.sleep(600))
    wrong = parse_rules("ruleset t over int8\nrule one: x + 1 => x\n").rules
    (result,) = prove_rules(wrong, 1, until=time.monotonic() + 5)
    assert result.verdict == "refuted" and "the engine makes of" in result.reason


def test_a_dead_prover_names_the_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of whichever case its process was at: two processes work on cases of one rule, and either dies first."""
    monkeypatch.setattr(prove, "decide", die_at_two)
    with pytest.raises(WorkerDied, match=r"t\.two over int \(T=int\d+\)"):
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
