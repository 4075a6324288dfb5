"""Settings of the whole test-suite, what tests leave behind, and the report on rules that never fired."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections import defaultdict
from collections.abc import Generator, Iterator
from weakref import WeakKeyDictionary, WeakSet, WeakValueDictionary
from zlib import crc32

import pytest
from forced_choices import FORCED, force
from hypothesis import settings
from rule_coverage import MADE_FOR_RULES, Coverage, allowed_not_to_fire, brings_rules
from rules_from_text import unproven_library

from proofgrad import Device, Tensor
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.runtime import canonical, changing, known_runs, memory, once, realize
from proofgrad.core.tensor.runtime.known_runs import _Runs
from proofgrad.core.tensor.runtime.realize import compiler

# In CI the same examples every time; elsewhere new ones, and a failing one is printed as a graph.
settings.register_profile("ci", derandomize=True)
if os.environ.get("CI"):
    settings.load_profile("ci")

# Tests want to see rules fire, however often they run; those of the plans on disk say so.
os.environ["PLANS"] = "0"
# What was measured of this machine decides nothing here: kernels are those of its description.
os.environ["CALIBRATION"] = "0"
# What is not asked of another machine is asked of the CPU, also where a GPU answers.
Device._preferred.clear()
# Every kernel of the suite is compared with its tensor graph at sampled elements, unless a run asks otherwise. Where a run has a DAY,
# those of every second file are, of the others the next day: comparing takes a third of the time of a test.
CHECK = os.environ.setdefault("CHECK", "1")

# Cycles are looked for at the start of each file of tests; in between seldom, which takes 4 % of the time at Python's own number.
gc.set_threshold(20_000)

# Servers that tests start are asked directly, whatever proxy the network outside needs.
for variable in ("no_proxy", "NO_PROXY"):
    os.environ[variable] = ",".join(filter(None, (os.environ.get(variable), "127.0.0.1")))

# A shell starts what runs in the background with interrupts ignored; some tests, and what they start, are interrupted.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A test of several cases runs one part of them a day, where a run has a DAY: of two cases one, of three a third, ..., of more an eighth,
# of twenty and more a twentieth; of one that is `every_day` all.
PARTS, PARTS_OF_MANY = 8, 20
# One that is `long` runs on one day of so many.
DAYS_OF_LONG = 5
# The files that take longest: where two processes take file by file, neither waits for the other at the end.
LONG = (
    "test_steps_exhaustively", "test_docs", "test_step_faults", "test_wrong_rules", "test_benchmarks", "test_leaks",
    "test_device_trial", "test_planted", "test_verify_rules", "test_kernel_proof", "test_hostile_ledgers", "test_readings",
    "test_variable_idioms", "test_demo_on_gpus", "test_shared_tiles",
)  # fmt: skip

# The shortest vectors of the CPU for which tests say what heuristics choose.
HEURISTICS_BYTES = 32

COVERAGE = Coverage()
COVERAGE.start()


@pytest.fixture(autouse=True)
def process_as_before() -> Iterator[None]:
    """What a test asks of the whole process, the next one does not find: tests run in any order."""
    environment, folder = dict(os.environ), os.getcwd()
    default, training = Device._chosen, Tensor.training
    devices, makers = dict(Device._devices), dict(Device._makers)
    yield
    for name in Device._devices.keys() - devices.keys() - makers.keys():
        del Device._devices[name]  # of a test; what the library opened in it stays open
    Device._devices.update(devices)
    Device._makers = makers
    if dict(os.environ) != environment:
        os.environ.clear()
        os.environ.update(environment)
    os.chdir(folder)
    changing.SEEN.clear()
    Device._chosen, Tensor.training = default, training
    if (torch := sys.modules.get("torch")) is not None:
        torch.set_grad_enabled(True)  # its peers of benchmarks switch them off for the process
    library = compiler()._library
    if library is not None and library._added:
        library._added.clear()
        compiler().forget()  # what was compiled with the rules of a test


@pytest.fixture(autouse=True, scope="module")
def collector_looks_at_new_objects() -> None:
    """What earlier files left in caches is not looked through again at each collection: millions of objects."""
    gc.collect()
    gc.freeze()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Long files first. With DAY=n a test of several cases runs a part of them, others with n + 1; else all run."""
    items.sort(key=lambda item: LONG.index(item.path.stem) if item.path.stem in LONG else len(LONG))
    if "DAY" not in os.environ:
        return
    out = _of_other_days(items, int(os.environ["DAY"]))
    config.hook.pytest_deselected(items=[item for item in items if item in out])
    items[:] = [item for item in items if item not in out]


def _of_other_days(items: list[pytest.Item], day: int) -> set[pytest.Item]:
    """The cases that run on other days: of each test some run every day, drawn, so that none follow a pattern."""
    cases = defaultdict(list)
    for item in sorted(items, key=lambda item: crc32(item.nodeid.encode())):
        cases[_function_of(item)].append(item)
    others = {
        item
        for of_one in cases.values()
        if of_one[0].get_closest_marker("every_day") is None
        for place, item in enumerate(of_one)
        if (place + day) % _parts(len(of_one))
    }
    long = [item for item in items if item.get_closest_marker("long") is not None]
    return others.union([x for x in long if (crc32(x.nodeid.encode()) + day) % DAYS_OF_LONG])


def _is_checked_today(item: pytest.Item) -> bool:
    if "DAY" not in os.environ:
        return True
    return (crc32(item.path.name.encode()) + int(os.environ["DAY"])) % 2 == 0


def _parts(cases: int) -> int:
    return PARTS_OF_MANY if cases >= PARTS_OF_MANY else min(PARTS, cases)


def _function_of(item: pytest.Item) -> str:
    return item.nodeid.partition("[")[0]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Instances that are made from the rules themselves do not count as use."""
    if item.path.name == MADE_FOR_RULES:
        with COVERAGE.paused():
            return (yield)
    if brings_rules(getattr(item, "module", None)):
        with COVERAGE.with_own_rules():
            return (yield)
    return (yield)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """What heuristics are asked to choose is for vectors of 32 bytes or more, which all but old x86-64 processors have."""
    os.environ["CHECK"] = CHECK if _is_checked_today(item) else "0"
    is_of_choices = item.get_closest_marker("heuristics") is not None
    if is_of_choices and Device["CPU"].target.vector_bytes < HEURISTICS_BYTES:
        pytest.skip("for another choice is right where vectors are this short")


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--all-rules-fire`, for runs of the whole suite; `--choices NAME`, of forced_choices.py."""
    text = "fail if a rule that tests/never_fired.txt does not name never fired in the whole suite"
    parser.addoption("--all-rules-fire", action="store_true", help=text)
    text = "compile every kernel with these choices of loops, tiles and threads"
    parser.addoption("--choices", choices=tuple(FORCED), help=text)


def pytest_configure(config: pytest.Config) -> None:
    """With `--choices NAME` every kernel of the run is compiled so."""
    name = config.getoption("--choices", None)
    if name is not None:
        force(name)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """With `--all-rules-fire` a rule that never fired fails a run that was good and whole."""
    if exitstatus == pytest.ExitCode.OK and _silent_rules(session.config):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """How many rules fired, and after the whole suite which did not."""
    if config.getoption("numprocesses", None):
        return  # each worker counts for itself
    if (compared := sys.modules.get("op_table")) is not None and compared.COUNT.values:
        count = compared.COUNT
        terminalreporter.section("operations on edge values")
        terminalreporter.write_line(
            f"{count.values} values of {count.pairs} pairs of operation and type as numpy says,"
            f" {count.by_torch} values as torch says, {count.gradients} gradients as differences"
        )
    terminalreporter.section("rules of the library")
    for line in COVERAGE.report(_library(), _is_whole(config), allowed_not_to_fire()):
        terminalreporter.write_line(line)
    if silent := _silent_rules(config):
        terminalreporter.write_line(
            f"--all-rules-fire: {len(silent)} rules never fired; give each a test that compiles a"
            " program in which it fires, or a line with the reason in tests/never_fired.txt"
        )


def _library() -> list[str]:
    return [rule.full_name for rules in unproven_library().values() for rule in rules.rules]


def _silent_rules(config: pytest.Config) -> list[str]:
    """With `--all-rules-fire`, after the whole suite: rules that should have fired."""
    if not config.getoption("--all-rules-fire") or not _is_whole(config):
        return []
    allowed = allowed_not_to_fire()
    return [name for name in COVERAGE.never_fired(_library()) if name not in allowed]


def _is_whole(config: pytest.Config) -> bool:
    """Whether nothing was left out on the command line."""
    chosen = [config.getoption(name) for name in ("keyword", "markexpr", "deselect", "ignore")]
    chosen += [config.getoption(name, None) for name in ("collectonly", "lf", "maxfail")]
    return bool(config.args == config.getini("testpaths")) and not any(chosen)


@pytest.fixture
def fresh_runs(monkeypatch: pytest.MonkeyPatch) -> _Runs:
    """No run is known yet, and what other tests have left to be drawn, or shown, keeps none from being looked for."""
    fresh = _Runs()
    for place in (known_runs, memory, realize):
        monkeypatch.setattr(place, "RUNS", fresh)
    monkeypatch.setattr(once, "_DRAWN", WeakValueDictionary())
    monkeypatch.setattr(once, "_COPIED", WeakSet())
    shown: WeakKeyDictionary[UOp, UOp] = WeakKeyDictionary()
    for place in (canonical, realize):
        monkeypatch.setattr(place, "SHOWN", shown)
    return fresh


@pytest.fixture
def no_known_runs(fresh_runs: _Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """No run is known, nor will be: small values, too, get memory of their own."""
    monkeypatch.setattr(known_runs, "RESULT_BYTES", 0)


@pytest.fixture(params=["0", "1"], ids=["unchecked", "checked"])
def checked_runs(
    request: pytest.FixtureRequest, fresh_runs: _Runs, monkeypatch: pytest.MonkeyPatch
) -> _Runs:
    """No run is known yet; without checks, then with them."""
    monkeypatch.setenv("CHECK", request.param)
    return fresh_runs


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """CUDA is an emulated GPU."""
    from planted.gpu_faults import emulated

    with emulated(monkeypatch):
        yield
