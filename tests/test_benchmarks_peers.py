"""What benchmarks/peers.py asks of each framework is the same work, and each line has a limit."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from machine_limits import Limits
from peer_workloads import WORKLOADS, Limit, Workload
from peers import AVX2, kept
from peers_page import Line, page
from side_by_side import Times, own_cache

from proofgrad.backends.cpu.processors import processor_named

PEERS = Path(__file__).resolve().parent.parent / "benchmarks" / "peers.py"
# Sizes of each kind of inference, so small that it is over at once.
LITTLE = {
    "product": (5, 7, 3), "batch": (2, 5, 7, 3), "turned_a": (6,), "turned_b": (6,), "elementwise": (5, 7), "gelu": (5, 7),
    "softmax": (5, 7), "layernorm": (5, 7), "transpose": (5, 7), "sum": (5, 7), "sum_axis0": (5, 7), "embedding": (11, 3, 16),
    "convolution": (2, 3, 4, 9, 3, 2), "attention": (2, 5, 8), "causal": (2, 5, 8), "jitted": (4,), "ten": (4,),
}  # fmt: skip
LIMITS = Limits(gflops=100.0, copy_gbs=10.0, read_gbs=20.0, fresh_gbs=5.0, launch_us=1.0)


def line(workload: Workload, ours: float = 1e-3, peer: float = 2e-3) -> Line:
    return Line(workload, {"proofgrad": Times(ours, [ours]), "numpy": Times(peer, [peer])})


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.name)
def test_each_line_has_a_limit(workload: Workload) -> None:
    fraction = line(workload).fraction(LIMITS)
    assert workload.limit is not Limit.NONE and fraction is not None and fraction > 0


def test_a_fraction_is_the_least_time_over_ours() -> None:
    found = {w.name: line(w).fraction(LIMITS) for w in WORKLOADS}
    assert found["matmul 512"] == pytest.approx(2 * 512**3 / 100e9 / 1e-3)
    assert found["sum 3001x5003"] == pytest.approx(4 * 3001 * 5003 / 20e9 / 1e-3)
    assert found["transpose 3001x5003"] == pytest.approx(8 * 3001 * 5003 / 10e9 / 1e-3)
    assert found["transpose 4096, fresh"] == pytest.approx(4 * 4096**2 / 5e9 / 1e-3)
    assert found["jitted 16x16 kernel"] == pytest.approx(1e-3)


def test_the_page_and_what_is_kept_name_lines_below() -> None:
    lines = [line(WORKLOADS[0]), line(replace(WORKLOADS[1], bar=1.0), peer=5e-4)]
    rows, summary = kept(lines, LIMITS)
    assert (summary["geomean"], summary["below 1"]) == (pytest.approx(1.0), [WORKLOADS[1].name])
    assert [row["peer"] for row in rows] == ["numpy", "numpy"]
    text = page(lines, [], LIMITS, ["numpy", "jax"], "; restricted")
    assert "1 of 2 lines are as asked. The geomean of the ratios is 1.00." in text
    assert (
        "; restricted; calibration: " in text
        and "Not timed, for it does not run on this machine: jax" in text
    )


@pytest.mark.parametrize("framework", ["onnxruntime", "openvino"])
def test_graphs_of_inference_compute_what_torch_does(framework: str) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("onnx")
    pytest.importorskip(framework)
    import peer_onnx
    import peer_torch

    for kind, sizes in LITTLE.items():
        workload = Workload(kind, kind, sizes, Limit.NONE, 1.0, "")
        found = peer_onnx.run_of(workload, framework)()
        value = found[0] if framework == "onnxruntime" else next(iter(found.to_dict().values()))
        expected = np.asarray(peer_torch.run_of(workload)())
        np.testing.assert_allclose(value, expected, rtol=1e-3, atol=1e-4, err_msg=kind)


def test_without_avx512_the_output_says_so(tmp_path: Path) -> None:
    if missing := processor_named(AVX2["CPU_TARGET"]).missing:
        pytest.skip(missing)
    arguments = "--only jitted --avx2 --peers numpy jax --rounds 1 --no-limits --no-first --table"
    command = [sys.executable, str(PEERS), *arguments.split(), "--results", str(tmp_path)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert "restricted to AVX2: CPU_TARGET=haswell" in done.stdout
    (kept_file,) = tmp_path.glob("peers-with-AVX2-*.json")
    assert '"CPU_TARGET": "haswell"' in kept_file.read_text()


def test_workers_find_how_the_machine_was_measured_and_no_kernels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("calibration/ab/abc", "cpu/ab/abc"):
        (tmp_path / "users" / name).parent.mkdir(parents=True)
        (tmp_path / "users" / name).write_text("kept")
    monkeypatch.setenv("PROOFGRAD_CACHE", str(tmp_path / "users"))
    environment = own_cache(tmp_path / "own")
    assert environment["PROOFGRAD_CACHE"] == str(tmp_path / "own")
    kept_files = [path.name for path in (tmp_path / "own").rglob("*") if path.is_file()]
    assert kept_files == ["abc"] and (tmp_path / "own" / "calibration" / "ab" / "abc").exists()
