"""The conformance suite on a machine that does not keep all of IEEE 754: what it says so of is left out and counted, all else compared."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from proofgrad import Device, dtypes
from proofgrad.backends.reference import ReferenceBackend
from proofgrad.core.compile.machine.target import UNPROMISED, Binary, Launch
from proofgrad.testing import backend as conformance
from proofgrad.testing.conformance.check import Report
from proofgrad.testing.conformance.differences import Exactness, differences
from proofgrad.testing.conformance.edges import edges, is_kept, kept_edges

NAME = "FLUSHING"
DENORMALS = ("denormal numbers",)
REASON = "the machine does not keep denormal numbers"


class Flushing(ReferenceBackend):
    """Results of float32 that are denormal become 0, and says nothing of it."""

    name = NAME
    target = replace(ReferenceBackend.target, name=NAME, arithmetic=frozenset({*dtypes.all}) - {dtypes.float16, dtypes.bfloat16})  # fmt: skip

    def load(self, binary: Binary) -> Launch:
        run = super().load(binary)
        kinds = binary.source.params

        def launch(buffers: Sequence[Any]) -> None:
            run(buffers)
            for kind, memory in zip(kinds, buffers, strict=False):
                if kind is dtypes.float32:
                    values = np.frombuffer(memory, np.float32)
                    values[np.abs(values) < 2.0**-126] *= 0.0

        return launch


class Honest(Flushing):
    """The same machine, which says it."""

    target = replace(Flushing.target, unpromised=DENORMALS)


@pytest.fixture
def reports() -> Iterator[Callable[[type[Flushing]], dict[str, Report]]]:
    def run(machine: type[Flushing]) -> dict[str, Report]:
        Device._devices[NAME] = machine()
        return {report.name: report for report in conformance.run(NAME, only=("floats",))}

    yield run
    Device._devices.pop(NAME, None)
    Device._opened.pop(NAME, None)


def test_machine_that_says_what_it_does_not_keep_fails_nothing(
    reports: Callable[[type[Flushing]], dict[str, Report]],
) -> None:
    floats = reports(Honest)["floats"]
    assert floats.failed == []
    assert floats.passed > 50
    told = {reason: count for reason, count in floats.skipped.items() if REASON in reason}
    assert told[REASON] == 4  # one for each type of floats: its edges
    assert told[f"{REASON}, and the result has some"] > 0  # the smallest normal numbers, halved


def test_machine_that_does_not_say_it_fails(
    reports: Callable[[type[Flushing]], dict[str, Report]],
) -> None:
    assert any(line.startswith("float32 ") for line in reports(Flushing)["floats"].failed)


@pytest.mark.parametrize(
    "value, what",
    [(-0.0, "the sign of zero"), (math.inf, "infinities"), (math.nan, "NaN"), (1e-40, "denormal numbers")],
)  # fmt: skip
def test_each_kind_of_value_is_left_out_by_its_name(value: float, what: str) -> None:
    assert what in UNPROMISED
    others = tuple(name for name in UNPROMISED if name != what)
    assert not is_kept(value, dtypes.float32, (what,))
    assert is_kept(value, dtypes.float32, others)
    assert is_kept(value, dtypes.float32, ())


def test_denormals_of_float16_are_normal_in_float32_where_they_are_computed() -> None:
    assert kept_edges(dtypes.float16, DENORMALS) == edges(dtypes.float16)
    assert is_kept(2.0**-23, dtypes.float16, DENORMALS)
    assert not is_kept(2.0**-130, dtypes.bfloat16, DENORMALS)


def test_only_elements_that_are_not_kept_may_differ() -> None:
    expected = np.array([1e-40, 1.0, 2.0], np.float32)
    found = np.array([0.0, 1.0, 2.0], np.float32)
    assert differences(found, expected, dtypes.float32, Exactness(), unpromised=DENORMALS) == ""
    found[2] = 3.0
    told = differences(found, expected, dtypes.float32, Exactness(), unpromised=DENORMALS)
    assert told == "1 of 3 elements differ: at (2,) 3.0 instead of 2.0"
