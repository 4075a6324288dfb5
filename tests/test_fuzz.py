"""The fuzzer: it covers Tensor, is the same for a seed, finds faults that are planted, and shrinks them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from proofgrad import Tensor
from proofgrad.core.compile.machine.target import CompileError, DeviceError
from proofgrad.testing.fuzz import oracle, run
from proofgrad.testing.fuzz.__main__ import main
from proofgrad.testing.fuzz.compare import wrong_elements
from proofgrad.testing.fuzz.kinds import KINDS, program
from proofgrad.testing.fuzz.oracle import Meaningless, expected
from proofgrad.testing.fuzz.program import IN_PLACE, Data, Program, Ref, Step, source_of
from proofgrad.testing.fuzz.report import script_of
from proofgrad.testing.fuzz.run import Outcome, check
from proofgrad.testing.fuzz.shrink import shrunk
from proofgrad.testing.fuzz.table import EXCEPTIONS, TABLE
from proofgrad.testing.fuzz.worker import Here, Worker

ROOT = Path(__file__).parent.parent


def test_every_method_of_tensor_is_drawn_or_named_with_the_reason_why_not() -> None:
    names = {
        name
        for name in dir(Tensor)
        if not name.startswith("_")
        or (name.startswith("__") and name not in dir(type("Empty", (), {})))
    } | {"__lt__", "__le__", "__gt__", "__ge__", "__eq__", "__ne__"}
    assert names - set(TABLE) - set(EXCEPTIONS) == set(), "in neither"
    assert (set(TABLE) | set(EXCEPTIONS)) - names == set(), "no method of Tensor"
    assert set(TABLE) & set(EXCEPTIONS) == set(), "in both"
    assert set(IN_PLACE) <= set(EXCEPTIONS)
    assert all(EXCEPTIONS.values()), "a reason for each"


def test_every_operation_of_the_table_is_drawn() -> None:
    drawn: set[str] = set()
    for number in range(1500):
        made = program(5, number, "plain")
        drawn.update(getattr(s, "name", "") for s in made.statements)
        if set(TABLE) <= drawn:
            return
    assert set(TABLE) - drawn == set()


@pytest.mark.parametrize("kind", KINDS)
def test_programs_of_a_seed_are_the_same_in_every_process(kind: str) -> None:
    code = (
        "from proofgrad.testing.fuzz.kinds import program\n"
        "from proofgrad.testing.fuzz.program import source_of\n"
        f"print(''.join(source_of(program(3, n, {kind!r})) for n in range(4)), end='')"
    )
    here = "".join(source_of(program(3, number, kind)) for number in range(4))
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        there = subprocess.run(
            [sys.executable, "-c", code],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        assert there.stdout == here


def test_one_line_says_that_nothing_was_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--count", "5", "--seed", "1", "--only", "plain"], Here()) == 0
    printed = capsys.readouterr().out
    assert printed.count("\n") == 1
    assert printed.startswith("fuzz: 5 programs of ")
    assert ", seed 1, the slowest took " in printed
    assert printed.endswith(": nothing wrong\n")


def test_programs_run_in_a_process_of_their_own(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["--count", "2", "--seed", "1", "--only", "plain"]) == 0
    assert "2 programs" in capfd.readouterr().out


# -- planted faults -------------------------------------------------------------------------------

PLANTED = {
    "a meaning of the table": (
        "special",
        "from dataclasses import replace\n"
        "from proofgrad.testing.fuzz.table import TABLE\n"
        "TABLE['maximum'] = replace(TABLE['maximum'], meaning=TABLE['minimum'].meaning)\n",
    ),
    "a method": ("plain", "from proofgrad import Tensor\nTensor.flip = lambda self, *axes: self\n"),
    "a procedure": (
        "plain",
        "from proofgrad.core.compile.steps import accumulate\n"
        "accumulate.identity = lambda op, dtype: 0\n",
    ),
    "a cotangent": (
        "gradient",
        "from proofgrad.core.ir.ops import Ops\n"
        "from proofgrad.core.tensor import autograd\n"
        "before = autograd.cotangents\n"
        "def wrong(rules, node, cotangent, *more):\n"
        "    parts = before(rules, node, cotangent, *more)\n"
        "    return tuple(reversed(parts)) if node.op is Ops.MUL else parts\n"
        "autograd.cotangents = wrong\n",
    ),
    "an exception": (
        "plain",
        "from proofgrad import Tensor\n"
        "def permute(self, *order): raise AssertionError('two loops')\n"
        "Tensor.permute = permute\n",
    ),
    "a write": (
        "writes",
        "from proofgrad.core.tensor.methods.indexing.assign import Assignment\n"
        "Assignment._alive_links = lambda self: ()\n",
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", PLANTED)
def test_planted_fault_is_found_and_shrunk_to_a_script_that_fails(
    fault: str, tmp_path: Path
) -> None:
    kind, plant = PLANTED[fault]
    code = (
        f"{plant}\nimport sys\n"
        "from proofgrad.testing.fuzz.__main__ import main\n"
        "from proofgrad.testing.fuzz.worker import Here\n"
        f"sys.exit(main(['--count', '400', '--seed', '2', '--only', {kind!r}], Here()))"
    )
    # With CHECK=1, as the suite has it, the compiler would be the one to find it.
    environment = {**os.environ, "PROOFGRAD_CACHE": str(tmp_path), "PLANS": "0", "CHECK": "0"}
    found = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True
    )
    assert found.returncode == 1 and found.stdout, found.stderr[-2000:]
    assert found.stdout.splitlines()[-1].startswith("# fuzz: ")
    script = tmp_path / "script.py"
    script.write_text(found.stdout)
    statements = [line for line in found.stdout.splitlines() if line.startswith("v")]
    assert len(statements) <= 12, "shrunk"
    whole = subprocess.run(
        [sys.executable, str(script)], env=environment, capture_output=True, text=True
    )
    planted = tmp_path / "planted.py"
    planted.write_text(f"{plant}\n{found.stdout}")
    broken = subprocess.run(
        [sys.executable, str(planted)], env=environment, capture_output=True, text=True
    )
    if fault == "a meaning of the table":  # the package is right, and what is expected is not
        assert whole.returncode == 1 and "expected" in whole.stdout
        return
    assert broken.returncode == 1, broken.stdout
    assert whole.returncode == 0, whole.stdout + whole.stderr
    assert "expected" in broken.stdout or "two loops" in broken.stderr


def test_shrinking_keeps_the_fault_and_little_else() -> None:
    """Every program with a `cumsum` is taken to be wrong: one remains, and one leaf."""

    def check_(made: object) -> Outcome:
        has = any(getattr(s, "name", "") == "cumsum" for s in made.statements)  # type: ignore[attr-defined]
        return Outcome("wrong" if has else "right", "v0 at (): got 1, expected 2 (1 wrong)")

    for number in range(200):
        made = program(4, number, "plain")
        if check_(made).is_find:
            small, outcome = shrunk(made, check_(made), check_)  # type: ignore[arg-type]
            assert small.operations <= 2
            assert "EXPECTED" in script_of(small, outcome)
            return
    raise AssertionError("no program with a cumsum among 200")


def test_a_program_that_takes_too_long_is_found() -> None:
    made = program(1, 0, "plain")
    assert check(made, seconds=0.001).status in ("slow", "right")
    assert check(made).status == "right"


@pytest.mark.parametrize("words, status", [("has no values of float64", "refused"), ("", "error")])
def test_a_type_that_a_machine_lacks_is_no_fault(
    monkeypatch: pytest.MonkeyPatch, words: str, status: str
) -> None:
    def lacks(_: str) -> None:
        raise CompileError(f"WGSL {words}")

    monkeypatch.setattr(run, "run_source", lacks)
    assert check(program(1, 0, "plain")).status == status


def test_programs_that_lose_a_gpu_show_one_fault_and_their_process_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def lose(source: str) -> None:
        raise DeviceError(f"the GPU was lost in the kernel {len(source)}")

    monkeypatch.setattr(run, "run_source", lose)
    first, second = [check(program(1, number, "plain")) for number in range(2)]
    assert first.detail != second.detail and first.fault == second.fault
    worker, process, connection = Worker(), Mock(), Mock()
    connection.recv.return_value = first
    monkeypatch.setattr(worker, "_process", process)
    monkeypatch.setattr(worker, "_connection", connection)
    assert worker.check(program(1, 0, "plain")) is first
    process.kill.assert_called_once()
    worker.close()


def test_a_sum_that_is_not_finite_has_no_known_slope() -> None:
    """Differences of infinities say nothing of a derivative: neither a number nor NaN is wrong."""
    leaf = Data("float32", (1,), (1.0,))
    other = Data("float32", (2,), (1.0, float("inf")))
    statements = (
        Step(0, "Tensor", (leaf,)),
        Step(1, "Tensor", (other,)),
        Step(2, "__mul__", (Ref(0), Ref(1))),
    )
    weights = (Data("float32", (2,), (1.0, 1.0)),)
    made = Program("gradient", statements, (Ref(2),), gradient_of=(Ref(0),), weights=weights)
    (value,) = [value for name, value in expected(made).items() if name == "g0"]
    assert not wrong_elements(value, np.array([float("nan")], "float32"), False).any()
    assert not wrong_elements(value, np.array([float("inf")], "float32"), False).any()


def test_what_numpy_has_no_operation_for_is_no_program() -> None:
    """uint64 and int32 have no common integer: their bits are not combined, nor does the fuzzer end."""
    statements = (
        Step(0, "Tensor", (Data("uint64", (2,), (1, 2)),)),
        Step(1, "Tensor", (Data("int32", (2,), (1, 2)),)),
        Step(2, "bitwise_and", (Ref(0), Ref(1))),
    )
    with pytest.raises(Meaningless):
        expected(Program("plain", statements, (Ref(2),)))


def test_samples_that_are_alike_by_chance_are_not_exact() -> None:
    """x * (1 / x) is 1 or the number below, as x is rounded."""
    statements = (
        Step(0, "Tensor", (Data("float64", (1,), (-1.5,)),)),
        Step(1, "sinh", (Ref(0),)),
        Step(2, "reciprocal", (Ref(1),)),
        Step(3, "mul", (Ref(1), Ref(2))),
    )
    value = expected(Program("plain", statements, (Ref(3),)))["v3"]
    assert not wrong_elements(value, np.array([1 - 2.0**-53]), False).any()
    assert wrong_elements(value, np.array([1 - 2.0**-40]), False).any()


def test_kinks_that_cancel_in_a_sum_have_no_derivative() -> None:
    leaf = np.zeros(1)

    def parts() -> np.ndarray[Any, Any]:
        return np.array([max(leaf[0], 0.0), -max(leaf[0], 0.0), 0.25 * leaf[0]])

    best, error = oracle._slope(leaf, (0,), parts, parts())
    assert best == pytest.approx(0.25) and np.isnan(error)
    leaf[0] = 1.0
    best, error = oracle._slope(leaf, (0,), parts, parts())
    assert best == pytest.approx(0.25) and error < 1e-6


def test_floats_that_are_cast_to_integers_saturate_in_differences_too() -> None:
    """cast(-2.0, uint16) * w has the derivative 0: as an integer that wraps, -2 would be 65534."""
    statements = (
        Step(0, "Tensor", (Data("float32", (2,), (-2.0, 3.0)),)),
        Step(1, "Tensor", (Data("float32", (2,), (1.0, 1.0)),)),
        Step(2, "cast", (Ref(0), "uint16")),
        Step(3, "__mul__", (Ref(2), Ref(1))),
    )
    weights = (Data("float32", (2,), (1.0, 1.0)),)
    made = Program("gradient", statements, (Ref(3),), gradient_of=(Ref(1),), weights=weights)
    value = dict(expected(made))["g1"]
    assert not wrong_elements(value, np.array([0.0, 3.0], "float32"), False).any()
    assert wrong_elements(value, np.array([65534.0, 3.0], "float32"), False).tolist() == [True, False]  # fmt: skip


@pytest.mark.parametrize("narrow, is_allowed", [("bfloat16", True), ("float32", False)])
def test_a_gradient_is_as_exact_as_the_narrowest_type_on_its_way(
    narrow: str, is_allowed: bool
) -> None:
    statements = (
        Step(0, "Tensor", (Data("float64", (1,), (1.0,)),)),
        Step(1, "Tensor", (Data("float64", (1,), (131.25,)),)),
        Step(2, "cast", (Ref(0), narrow)),
        Step(3, "__mul__", (Ref(1), Ref(2))),
    )
    weights = (Data("float64", (1,), (1.0,)),)
    made = Program("gradient", statements, (Ref(3),), gradient_of=(Ref(0),), weights=weights)
    value = dict(expected(made))["g0"]
    rounded = np.array([131.0])  # of 8 digits
    assert wrong_elements(value, rounded * 1.1, False).all()
    assert wrong_elements(value, rounded - 0.25, False).any() != is_allowed
