"""The environment: variables are known, listed, read when used; commands that tell of the machine."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from proofgrad import Context, Device, DeviceError, Tensor
from proofgrad.__main__ import main
from proofgrad.core import settings
from proofgrad.core.tensor.runtime import changing

ROOT = Path(__file__).parent.parent
READS = re.compile(r"""(?:environ(?:\.get)?[\[(]|(?:number|text)\()\s*["']([A-Z][A-Z0-9_]+)["']""")


def read_by_the_code() -> set[str]:
    files = [f for part in ("core", "backends", "proofgrad", "rules", "verify") for f in (ROOT / part).rglob("*.py")]  # fmt: skip
    return {name for file in files for name in READS.findall(file.read_text("utf-8"))}


def test_every_variable_that_the_code_reads_is_listed() -> None:
    found = read_by_the_code()
    assert {"DEBUG", "JIT", "NO_COLOR", "PROOFGRAD_CACHE", "NOALG"} <= found
    assert found <= set(settings.MEANING)


def test_env_command_shows_values_meanings_and_colours(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NUM_THREADS", "2")
    assert main(["env"]) == 0
    text = capsys.readouterr().out
    assert re.search(r"^NUM_THREADS +2 +CPU threads", text, re.MULTILINE)
    assert all(name in text for name in settings.MEANING)
    assert "sizes of loops in names: global, block, lane, ahead, thread, reduce" in text


@pytest.mark.long
def test_devices_are_listed_with_their_other_names(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["devices"]) == 0
    assert re.search(r"^CPU +CLANG LLVM +available", capsys.readouterr().out, re.MULTILINE)


@pytest.mark.parametrize(
    ("name", "value"),
    [("CPU", "1"), ("CLANG", "1"), ("LLVM", "1"), ("DEV", "CPU"), ("DEVICE", "CLANG")],
)
def test_all_spellings_choose_the_cpu(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Device, "_chosen", None)
    for other in ("DEV", "DEVICE", *Device.names(), "CLANG", "LLVM", "GPU", "OPENCL"):
        monkeypatch.delenv(other, raising=False)
    monkeypatch.setenv("DEV", "REFERENCE")
    assert Device.DEFAULT == "REFERENCE"
    monkeypatch.delenv("DEV")
    monkeypatch.setenv(name, value)
    assert Tensor([1]).device == "CPU"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("CUDDA", "unknown device 'CUDDA'; did you mean CUDA"),
        ("QCOM", "'QCOM' is not built here; provided: CPU"),
        ("clan", "did you mean CLANG"),
    ],
)
def test_unknown_devices_are_refused_with_what_there_is(name: str, message: str) -> None:
    with pytest.raises(DeviceError, match=message):
        Tensor([1], device=name)


def test_each_debug_level_adds_to_the_one_before(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changing, "MOST_OWN", 99)  # each keeps its number, and has a kernel
    signs = {
        1: r"1 kernels, ",
        2: r"\*\*\* CPU",
        3: r"define .*@",
        4: r"--- kernel: linearize -> Linear",
        5: r"rules that fired: \w",
        6: r"\bret",
    }
    for level in range(7):
        with Context(DEBUG=level):
            (Tensor([1.0, 2.0]).realize() * (level + 3.125) + 0.5).realize()
        text = capsys.readouterr().err
        shown = {k for k, sign in signs.items() if re.search(sign, text)}
        assert shown >= set(range(1, level + 1))
        assert not {k for k in shown if k > level} - {6}


def test_noalg_and_nosched_are_the_parts_of_noopt(capsys: pytest.CaptureFixture[str]) -> None:
    def stages(**variables: int) -> set[str]:
        with Context(DEBUG=4, **variables):
            (Tensor([[1.0] * 8] * 8).realize() * sum(variables.values()) + 7.5).realize()
        return set(re.findall(r"^--- \w+: (.+?) ->", capsys.readouterr().err, re.MULTILINE))

    everything, no_algebra = stages(), stages(NOALG=1)
    no_loops, neither = stages(NOSCHED=1), stages(NOOPT=1)
    assert {"simplify index terms", "choose axes"} <= everything
    assert "simplify index terms" not in no_algebra and "choose axes" in no_algebra
    assert "simplify index terms" in no_loops and "choose axes" not in no_loops
    assert neither == no_algebra & no_loops


def test_debug_nans_stops_at_the_kernel_that_makes_one(monkeypatch: pytest.MonkeyPatch) -> None:
    x = Tensor([1.0, -1.0, 4.0]).realize()
    y = x.sqrt() + 1
    monkeypatch.setenv("DEBUG_NANS", "1")
    with pytest.raises(
        FloatingPointError, match=r"wrote 1 NaN of 3 values, the first at element 1"
    ):
        y.realize()
    monkeypatch.setenv("DEBUG_NANS", "0")
    assert y.tolist()[0] == 2.0
    assert os.environ["DEBUG_NANS"] == "0"
