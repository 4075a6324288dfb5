"""What DEBUG=2 and `profile` tell about kernels."""

from __future__ import annotations

import re

import pytest

from proofgrad import Tensor, TinyJit, profile


def test_profile_has_the_slowest_kernel_first_and_counts_runs() -> None:
    x = Tensor([[float(i + j) for i in range(8)] for j in range(8)]).realize()

    @TinyJit
    def f(x: Tensor) -> Tensor:
        return (x @ x).relu().contiguous().sum()

    with profile() as report:
        for _ in range(4):
            f(x)
    seconds = [row.seconds for row in report.rows]
    assert seconds == sorted(seconds, reverse=True)
    assert [row.count for row in report.rows] == [4, 4]
    assert all(row.name in str(report) and row.nbytes > 0 for row in report.rows)


def test_debug_2_names_methods_shapes_and_times(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEBUG", "2")
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.delenv("NO_COLOR", raising=False)
    x = Tensor([[1.0, 2.0, 5.5] * 700]).realize()  # more than any vectors that are written out
    (x.exp() - 7.25).sum(1).realize()
    line = next(line for line in capsys.readouterr().err.splitlines() if "GB/s" in line)
    assert line.startswith("*** CPU") and "(1, 1)" in line and " ms" in line
    assert "sum" in line and "__sub__" in line
    assert re.search("\033\\[31m[0-9]+\033\\[0m", line)  # the loop of the reduction, in red
    monkeypatch.setenv("NO_COLOR", "1")
    (x.exp() - 8.25).sum(1).realize()
    assert "\033[" not in capsys.readouterr().err


def test_methods_are_not_traced_without_debug(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEBUG", "0")
    (item,) = (Tensor([1.0, 2.0]).realize() * 17.5).schedule()
    assert item.metadata == ()


def test_profile_names_the_methods_of_what_is_made_within_it() -> None:
    x = Tensor([[1.0, 2.0, 5.5] * 5]).realize()
    with profile() as report:
        (x.exp() - 3.75).sum(1).realize()
    (row,) = report.rows
    assert {"sum", "__sub__", "exp"} <= set(row.methods) and "__sub__" in str(report)
    (item,) = (x * 19.5).schedule()
    assert item.metadata == ()


def test_profile_of_a_function_recorded_before_has_no_methods() -> None:
    f = TinyJit(lambda x: (x * 21.5).realize())
    for k in range(3):
        f(Tensor([float(k)]).realize())
    x = Tensor([1.0]).realize()
    with profile() as report:
        f(x)
    assert [row.methods for row in report.rows] == [()]


def test_tracing_ends_with_a_profile_that_raises() -> None:
    with pytest.raises(ZeroDivisionError), profile():
        1 / 0  # noqa: B018
    (item,) = (Tensor([1.0, 2.0]).realize() * 23.5).schedule()
    assert item.metadata == ()
