"""Every script of examples/ runs and prints what it promises."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"
PROMISED = {
    "fit_line.py": "y = 3.0 x -1.0",
    "resnet.py": "11181642 weights, scores (1, 10)\nfinite",
    "custom_activation.py": "derivatives [1.0, 1.0, 0.75, 12.0]",
}


def test_every_example_has_its_promise() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(PROMISED)


@pytest.mark.parametrize("name", PROMISED)
def test_example_prints_what_it_promises(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    assert PROMISED[name] in capsys.readouterr().out
