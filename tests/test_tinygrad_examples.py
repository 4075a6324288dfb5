"""The examples in tinygrad's docstrings run here: each block, in the order of its file, with the import changed.

Needs the package tinygrad (`pip install -e ".[compare]"`), whose sources are read and not imported.
"""

from __future__ import annotations

import contextlib
import io
import math
import re
from importlib.util import find_spec
from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
import pytest

import proofgrad

BLOCK = re.compile(r'^([ ]*)```python exec="true"[^\n]*\n(.*?)^\1```', re.DOTALL | re.MULTILINE)
# docs/coming-from-tinygrad.md has the reasons; by a word of the block.
REFUSED = {
    '255], dtype="int8"': OverflowError,
    ".shard(": AttributeError,
    "t[Tensor([4, 3, 2])]": IndexError,  # of 3 elements
}
NAMES = ("Tensor", "dtypes", "nn", "Context", "Variable", "TinyJit", "GlobalCounters", "Device")


def blocks() -> dict[str, list[str]]:
    """The blocks of each file of the installed package that has some."""
    spec = find_spec("tinygrad")
    if spec is None or spec.origin is None:
        return {}
    root = Path(spec.origin).parent
    found = {}
    for path in sorted(root.rglob("*.py")):
        codes = [dedent(code) for _, code in BLOCK.findall(path.read_text("utf-8"))]
        if codes:
            found[str(path.relative_to(root))] = codes
    return found


def error_of(code: str, names: dict[str, Any]) -> BaseException | None:
    with contextlib.redirect_stdout(io.StringIO()):
        try:
            exec(code.replace("tinygrad", "proofgrad"), names)
        except Exception as error:  # noqa: BLE001  (told by the test)
            return error
    return None


@pytest.mark.parametrize("file", blocks() or ["none"])
def test_examples_run(file: str) -> None:
    if file == "none":
        pytest.skip("the package tinygrad is not installed")
    names: dict[str, Any] = {"np": np, "math": math}
    names |= {name: getattr(proofgrad, name) for name in NAMES}
    names["optim"] = proofgrad.nn.optim
    wrong = []
    for code in blocks()[file]:
        error = error_of(code, names)
        wanted = next((kind for word, kind in REFUSED.items() if word in code), type(None))
        if not isinstance(error, wanted):
            wrong.append(f"{code}{type(error).__name__}: {error}")
    assert not wrong, "\n\n".join(wrong)
