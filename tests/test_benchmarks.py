"""Every program in benchmarks/ runs, on little work, and prints what it is for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from devices import opened

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "benchmarks"

# Arguments for little work, and a word of the output.
SMALL = {
    "check_cost.py": ("--rounds 1 softmax", "CHECK=1"),
    "compile_time.py": ("--rounds 1 --largest 2000", "kernels built and scheduled"),
    "eager_steps.py": ("--seconds 0.05 --layers 2", "2 layers, Adam"),
    "first_call.py": ("--rounds 1 product", "product      warm"),
    "generate.py": ("--blocks 1 --tokens 6 --rounds 2", "0 by the 4 after"),
    "gpu_peers.py": ("--small --only sum --results {folder}", "sum axis 1"),
    "index_corpus.py": ("--terms 3", "3 terms, 0 of them not equal to brute force"),
    "launch.py": ("--rounds 1", "jitted chain of ten"),
    "layers.py": ("--only flip", "flip                    gradients"),
    "leaks.py": ("--eager 12 --recorded 12 --numbers 12", "recorded          12 steps"),
    "load_rules.py": ("--rounds 1 --rules 700", "gate ms"),
    "low_precision.py": (
        "--only sum --types float16 --no-torch",
        "sum                     float16",
    ),
    "machine_limits.py": ("--seconds 0.05", "GFLOP/s"),
    "measure_core.py": ("--seconds 0.02", "the compiler takes"),
    "opencl_peers.py": ("--only 1001x1003 --rounds 1 --results {folder}", "sum 1001x1003"),
    "peak_memory.py": ("--steps 1", "proofgrad, jitted"),
    "peers.py": (
        "--only eager --peers numpy --rounds 1 --no-first --table --results {folder}",
        "| eager",
    ),
    "programs.py": ("vae generate --rounds 1 --steps 1", "27 / 27"),
    "ptx_kernels.py": ("row", "row sums 4096"),
    "random_shapes.py": (
        "--count 3 --kinds reduction --most 1e6 --rounds 1 --peers numpy --results {folder}",
        "tenth percentile",
    ),
    "resnet_rewrite.py": ("--rounds 1", "us per node"),
    "sass_loops.py": ("128", "| product | registers |"),
    "sizes.py": ("", "lines of code"),
    "startup.py": ("--rounds 1", "first call, cold"),
    "winograd.py": ("--rounds 1 --shapes 2x64x34x64 --no-torch", "WINO=1"),
}
ON_A_PAGE = ("fit_polynomials.py", "ulp_check.py")  # docs/numerics.md, run by tests/test_docs.py
PARTS = (
    *("index_terms.py", "tinygrad_terms.py", "workloads.py"),  # of others
    *("side_by_side.py", "peer_workloads.py", "peer_jax.py", "peer_lazy.py"),  # of peers.py
    *("shared_banks.py", "issued.py"),  # of ptx_kernels.py
    *("peer_numpy.py", "peer_torch.py", "peer_onnx.py", "peers_page.py", "kept_results.py"),
    *("drawn_cases.py", "drawn_ours.py", "drawn_peers.py"),  # of random_shapes.py
    *("programs_data.py", "programs_proofgrad.py", "programs_torch.py"),  # of programs.py
)


def printed(script: str, arguments: str, folder: Path) -> str:
    """The output of a benchmark that ends well. `folder`: what stands for {folder} in its arguments."""
    given = [argument.format(folder=folder) for argument in arguments.split()]
    command = [sys.executable, str(FOLDER / script), *given]
    environment = {**os.environ, "CHECK": "0"}  # what they time is what users run
    if script == "gpu_peers.py":
        environment["MOCKGPU"] = "1"
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=300, env=environment
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("script", SMALL)
def test_it_runs(script: str, tmp_path: Path) -> None:
    if script in ("eager_steps.py", "programs.py"):
        pytest.importorskip("torch")
    if script == "opencl_peers.py":
        opened("CL")
    arguments, expected = SMALL[script]
    assert expected in printed(script, arguments, tmp_path)
    if "{folder}" in arguments:
        (kept,) = [json.loads(path.read_text()) for path in tmp_path.glob("*.json")]
        assert kept["format"] == 1 and kept["machine"] and kept["lines"]
        assert 0 < kept["summary"]["lines"] <= len(kept["lines"])


def test_it_runs_beside_a_peer(tmp_path: Path) -> None:
    pytest.importorskip("tinygrad")
    arguments = "--terms 3 --peer tinygrad --lost 1"
    assert "times as fast" in printed("index_corpus.py", arguments, tmp_path)


def test_no_program_is_left_out() -> None:
    page = (ROOT / "docs" / "numerics.md").read_text()
    assert all([f"$ python benchmarks/{script}" in page for script in ON_A_PAGE])
    assert {path.name for path in FOLDER.glob("*.py")} == {*SMALL, *ON_A_PAGE, *PARTS}
