"""What a plain import brings along, and that a proven program needs no solver and no parser."""

from __future__ import annotations

import os
import subprocess
import sys

HEAVY = ("numpy", "z3", "lark", "llvmlite", "rich", "pyopencl", "sklearn", "hypothesis", "email")

BLOCK = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {blocked!r}:
            raise ImportError(name + " is blocked by this test")

sys.meta_path.insert(0, Blocked())
"""


def run(code: str, **environment: str) -> str:
    """What the code prints in a fresh process."""
    result = subprocess.run(
        [sys.executable, "-c", code],
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "CHECK": "0", **environment},
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def test_plain_import_brings_nothing_heavy() -> None:
    code = f"import sys, proofgrad; print([m for m in {HEAVY!r} if m in sys.modules])"
    assert run(code) == "[]"


def test_first_sum_needs_no_numpy_solver_or_parser(tmp_path: object) -> None:
    code = BLOCK.format(blocked={"numpy", "z3", "lark"}) + (
        "from proofgrad import Tensor\nprint((Tensor([1, 2, 3]) + 1).tolist())"
    )
    assert run(code, PROOFGRAD_CACHE=str(tmp_path)) == "[2, 3, 4]"


def test_a_kept_plan_needs_no_stages_no_rules_and_no_printer(tmp_path: object) -> None:
    modules = "proofgrad.rules.pipeline", "proofgrad.rules.library", "proofgrad.backends.llvm.emit"
    code = (
        "import sys\nfrom proofgrad import Tensor\nprint((Tensor([1, 2, 3]) + 1).tolist())\n"
        f"print([name for name in {modules!r} if name in sys.modules])"
    )
    asked = {"PROOFGRAD_CACHE": str(tmp_path), "PLANS": "1", "DEV": "CPU"}
    assert run(code, **asked).splitlines() == ["[2, 3, 4]", str([*modules])]
    assert run(code, **asked).splitlines() == ["[2, 3, 4]", "[]"]


def test_a_gradient_whose_plan_is_kept_needs_rules_and_no_stages(tmp_path: object) -> None:
    modules = "proofgrad.rules.library", "proofgrad.rules.pipeline"
    code = (
        "import sys\nfrom proofgrad import Tensor\nx = Tensor([1.0, 2.0], requires_grad=True)\n"
        "(x * x).sum().backward()\nprint(x.grad.tolist())\n"
        f"print([name for name in {modules!r} if name in sys.modules])"
    )
    asked = {"PROOFGRAD_CACHE": str(tmp_path), "PLANS": "1", "DEV": "CPU"}
    assert run(code, **asked).splitlines() == ["[2.0, 4.0]", str([*modules])]
    assert run(code, **asked).splitlines() == ["[2.0, 4.0]", str([modules[0]])]


def test_demo_trains_without_solver_and_parser() -> None:
    code = BLOCK.format(blocked={"z3", "lark"}) + (
        "from proofgrad.__main__ import main\nsys.exit(main(['demo', '--epochs', '1']))"
    )
    printed = run(code)
    assert "test accuracy" in printed
    unproven = [line for line in printed.splitlines() if "without a proof" in line]
    assert [line.split()[-1] for line in unproven] == ["0"]
