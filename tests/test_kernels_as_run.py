"""CHECK=2: kernels run on drawn memory. What a printer gets wrong, which no look at a Linear sees, is found; what is right passes."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy
import pytest

from proofgrad import Context, Device, Tensor, Variable
from proofgrad.core.compile.machine.target import Source
from proofgrad.core.compile.plan.known_kernels import KnownKernels
from proofgrad.core.compile.plan.plan import Kernel
from proofgrad.core.ir.dtypes import DType, dtypes
from proofgrad.core.tensor.runtime.realize import compiler
from proofgrad.verify.sampled import launched, pieces
from proofgrad.verify.sampled.as_run import elements_compared
from proofgrad.verify.sampled.expected import CheckError
from proofgrad.verify.sampled.inputs import ENDS, element
from proofgrad.verify.sampled.kernels import ValueChecker


@pytest.fixture
def check(monkeypatch: pytest.MonkeyPatch) -> ValueChecker:
    """Sees every kernel that is made from here on."""
    made = ValueChecker()
    for name, value in (("value_check", made), ("_kernels", KnownKernels(9)), ("_plans", {})):
        monkeypatch.setattr(compiler(), name, value)
    return made


def data(kind: str, *shape: int) -> Tensor:
    drawn = numpy.random.default_rng(0).integers(0, 5, shape)
    return Tensor(drawn.astype(kind), device="CPU").realize()


def two(kind: str, function: Callable[[Tensor, Tensor], Tensor]) -> Callable[[], Tensor]:
    return lambda: function(data(kind, 5, 21), data(kind, 5, 21))


def one(kind: str, function: Callable[[Tensor], Tensor]) -> Callable[[], Tensor]:
    return lambda: function(data(kind, 5, 21))


# A program, and what the printer might print instead, everywhere.
PRINTED: dict[str, tuple[Callable[[], Tensor], str, str]] = {
    "a comparison that NaN meets": (two("float32", lambda x, y: (x < y).where(x, y)), r"fcmp olt", "fcmp ult"),
    "a comparison that equal ones meet": (two("int8", lambda x, y: (x < y).where(x, y + 1)), r"icmp slt <", "icmp sle <"),
    "unsigned numbers as signed": (two("uint8", lambda x, y: x < y), r"icmp ult <", "icmp slt <"),
    "signed numbers as unsigned": (one("int8", lambda x: x.cast("int32") * 3), r"\bsext\b", "zext"),
    "zeros for the sign": (two("int8", lambda x, y: x >> y), r"\bashr\b", "lshr"),
    "a product as a sum": (two("float32", lambda x, y: x * y), r"\bfmul\b", "fadd"),
    "a negation as a difference from 0": (one("float32", lambda x: -x), r"fneg (<[^>]*>) (%\S+)", r"fsub \1 zeroinitializer, \2"),
    "a cast that saturates too early": (one("float32", lambda x: x.cast("int32")), r"i32 2147483647", "i32 2147483646"),
    "a sum without its last term": (lambda: data("float32", 7, 30).sum(0), r"fadd (<[^>]*>) (%\S+), (%\S+)", r"fadd \1 \2, \2"),
    "a quotient by -1": (two("int32", lambda x, y: x // y), r"splat \(i32 -1\)", "splat (i32 -3)"),
    "a root of what is next to it": (one("float32", lambda x: x.sqrt()), r"llvm\.sqrt\.", "llvm.fabs."),
    "floats to bfloat16, but for halves": (one("float32", lambda x: x.cast("bfloat16")), r"\b32767\b", "32766"),
    "the least as the largest": (two("int32", lambda x, y: x.maximum(y)), r"llvm\.smax\.", "llvm.smin."),
}  # fmt: skip


# As above, where a processor has masks of vectors.
OF_MASKS: dict[str, tuple[Callable[[], Tensor], str, str]] = {
    "a load mask of one too few": (one("float32", lambda x: x + 1), r"(@llvm\.masked\.load.*)i1 true, i1 false", r"\1i1 false, i1 false"),
    "a store mask of one too many": (one("float32", lambda x: x + 1), r"(@llvm\.masked\.store.*?)i1 false", r"\1i1 true"),
}  # fmt: skip


def rows(x: Tensor) -> Tensor:
    """As many as a variable says."""
    return x[: Variable("n", 1, 40).bind(7)]


def tripled_sums() -> Tensor:
    """With a loop that threads share."""
    return (data("float32", 64, 30) * 3).sum(1)


def changed_slice() -> Tensor:
    """Written over what it reads."""
    x = data("float32", 300)
    x[3:70] = x[3:70] * 2
    return x


_COUNTER, _BOUND = r"icmp slt i64 (%i\d+_loop\d+)", r"load i64, ptr %\S+, align 8"
# As above, where sizes are variables; where results lie over what is read; where threads share the items of a loop. The first two
# of the last are right as long as all items run at once.
OF_VARIABLES: dict[str, tuple[Callable[[], Tensor], str, str]] = {
    "a row too many is added": (lambda: (rows(data("float32", 40, 5)) * 3).sum(0), rf"{_COUNTER}, (%load\d+)", r"icmp sle i64 \1, \2"),
    "a row too many is written": (lambda: rows(data("float32", 40, 5)) * 3, rf"{_COUNTER}, (%load\d+)", r"icmp sle i64 \1, \2"),
    "the largest number of rows": (lambda: rows(data("int32", 40, 5)).max(0), _BOUND, "add i64 0, 40"),
    "a number in few bits": (lambda: rows(data("int32", 40, 5)).sum(0), rf"(%\S+) = ({_BOUND})", r"\1.long = \2\n  \1 = srem i64 \1.long, 32"),
}  # fmt: skip
OVER_INPUTS: dict[str, tuple[Callable[[], Tensor], str, str]] = {
    "a product as a sum over what it reads": (changed_slice, r"\bfmul\b", "fadd"),
    "what is kept is shifted": (changed_slice, r"(getelementptr float, ptr %buffer0, i64) (%\S+)", r"\1 4 ;\2"),
}  # fmt: skip
IN_PIECES: dict[str, tuple[Callable[[], Tensor], str, str]] = {
    "each piece begins at 0": (tripled_sums, r"phi i64 \[ %first,", "phi i64 [ 0,"),
    "each piece goes on to the end": (tripled_sums, rf"{_COUNTER}, %last", r"icmp slt i64 \1, 64"),
    "an item too many of each piece": (tripled_sums, rf"{_COUNTER}, %last", r"icmp sle i64 \1, %last"),
}  # fmt: skip


def _printing(monkeypatch: pytest.MonkeyPatch, pattern: str, instead: str) -> list[str]:
    """Lets the printer of the CPU print something else; the texts that have changed."""
    backend, changed = Device["CPU"], list[str]()
    emit = backend.emit

    def other(linear: Any, name: str) -> Source:
        source = emit(linear, name)
        text = re.sub(pattern, instead, source.text)
        changed.extend([text] if text != source.text else [])
        return replace(source, text=text)

    monkeypatch.setattr(backend, "emit", other)
    return changed


ALL = {**PRINTED, **OF_MASKS, **OF_VARIABLES, **OVER_INPUTS, **IN_PIECES}


def _choices(name: str) -> str:
    return "threads=on" if name in IN_PIECES else ""


@pytest.mark.parametrize("name", ALL)
def test_what_a_printer_gets_wrong_is_found(
    name: str, check: ValueChecker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mask of one too many stores a number behind the memory of the result, which nothing else shows."""
    program, pattern, instead = ALL[name]
    with Context(CHECK=2):
        right = program()
    changed = _printing(monkeypatch, pattern, instead)
    try:
        with Context(CHECK=2, CHOICES=_choices(name)), pytest.raises(CheckError, match="as it ran"):
            right.realize()
    finally:
        if name in OF_MASKS and not changed:
            pytest.skip("this processor has no masks of vectors")
    assert changed


def after_each_run(change: Callable[[Kernel, Any], object]) -> Callable[[Kernel], Any]:
    """`Kernel.ready` of kernels that do something else as well."""
    ready = Kernel.ready

    def clumsy(kernel: Kernel) -> Callable[[Any], None]:
        def run(handles: Any) -> None:
            ready(kernel)(handles)
            change(kernel, handles)

        return run

    return clumsy


def test_memory_that_is_only_read_stays_as_it_is(
    check: ValueChecker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kernel that writes to an argument as well, and what is right."""
    clumsy = after_each_run(lambda k, given: k.backend.copyin(given[-1], memoryview(b"abcd")))
    with Context(CHECK=2):
        (data("float32", 7, 3) * 2).realize()
        monkeypatch.setattr(Kernel, "ready", clumsy)
        with pytest.raises(CheckError, match="wrote byte 0 of parameter 1, which it only reads"):
            (data("float32", 7, 3) * 3).realize()


def test_bytes_before_memory_stay_as_they_are(
    check: ValueChecker, monkeypatch: pytest.MonkeyPatch
) -> None:
    clumsy = after_each_run(lambda _, given: ctypes.memset(given[0].address - 3, 0, 2))
    with Context(CHECK=2):
        x = data("float32", 7, 3)
        monkeypatch.setattr(Kernel, "ready", clumsy)
        with pytest.raises(CheckError, match="it wrote 3 bytes before parameter 0"):
            (x * 3).realize()


def test_all_of_few_elements_are_compared_and_both_ends_of_many() -> None:
    assert elements_compared(300, 512, 0).tolist() == [*range(300)]
    some, others = elements_compared(10**6, 512, 0), elements_compared(10**6, 512, 1)
    assert some[:64].tolist() == [*range(64)] and some[-64:].tolist() == [*range(10**6 - 64, 10**6)]
    assert len(some) > 500 and (some != others[: len(some)]).any()


def test_memory_begins_where_vectors_are_aligned_and_where_they_are_not(
    check: ValueChecker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A text that says 64 bytes of alignment ends the process at one that has 4."""
    ready, seen = Kernel.ready, set[int]()

    def noting(kernel: Kernel) -> Callable[[Any], None]:
        def run(handles: Any) -> None:
            seen.update([handle.address % 64 for handle in handles])
            ready(kernel)(handles)

        return run

    x = data("float32", 7, 3)
    monkeypatch.setattr(Kernel, "ready", noting)
    with Context(CHECK=2):
        (x * 3).realize()
    assert seen == {0, 12}


@pytest.mark.parametrize("name", [*PRINTED, *OF_VARIABLES, *OVER_INPUTS, *IN_PIECES])
def test_what_is_printed_right_passes(name: str, check: ValueChecker) -> None:
    with Context(CHECK=2, CHOICES=_choices(name)):
        ALL[name][0]().realize()
    assert not check.total.not_checked.keys() - {"sizes of a plan are variables"}
    assert check.total.runs >= 2
    assert str(check.total.runs) + " runs" in str(check.total)


def test_kernels_of_much_memory_are_not_run(check: ValueChecker) -> None:
    with Context(CHECK=2):
        (data("float32", launched.MOST_ELEMENTS) + 1).realize()
    assert not check.total.runs
    assert check.total.not_checked["not run: much memory"] == 1


def test_pieces_take_every_item_once_in_an_order_of_their_own() -> None:
    seen = [list(pieces.pieces(50, seed)) for seed in range(9)]
    for found in seen:
        items = [item for first, end in found for item in range(first, end)]
        assert sorted(items) == [*range(50)] and all(first < end for first, end in found)
        assert any(end - first == 1 for first, end in found)
    assert any(items != sorted(items) for items in seen) and list(pieces.pieces(1, 0)) == [(0, 1)]


def test_a_piece_that_writes_to_what_belongs_to_others_is_found() -> None:
    before = numpy.zeros(40, numpy.uint8)
    after = before.copy()
    after[8:12] = 1
    assert pieces.changed_outside(before, after, 4, 2, 3) is None
    assert pieces.changed_outside(before, after, 4, 0, 2) == 8
    assert pieces.changed_outside(before, after, 4, 3, 9) == 8


@pytest.mark.parametrize("dtype", [*dtypes.all, *dtypes.fp8s], ids=str)
def test_memory_is_read_as_it_was_written(dtype: DType) -> None:
    at = numpy.arange(200)
    values = element(1, dtype, at, at * 0 + ENDS, 0)
    again = launched._as_values(launched._as_bytes(values, dtype), dtype)
    assert list(map(repr, again.tolist())) == list(map(repr, values.tolist()))
