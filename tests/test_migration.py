"""Every row of the migration tables: both columns run, and give the same values."""

from __future__ import annotations

import importlib.util
import os
import pickle
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import proofgrad
from proofgrad import Tensor

DOCS = Path(__file__).parent.parent / "docs"
DATA = {
    "x": np.array([[1.5, -2.0, 0.25], [3.0, 4.0, -5.0]], np.float32),
    "y": np.array([[1.0, -1.0], [0.5, 2.0], [-3.0, 4.0]], np.float32),
    "i": np.array([[1, -2, 7], [40, -5, 6]], np.int32),
    "b": np.array([0.5, -1.5], np.float32),
}
TOLERANCE = 1e-5  # different orders of sums, different polynomials for exp
Make = Callable[[np.ndarray[Any, Any]], Any]


def rows(page: str) -> list[tuple[str, str]]:
    """The code of the two columns of each row."""
    lines = (DOCS / page).read_text("utf-8").splitlines()
    found = [re.match(r"\| `(.+?)` \| `(.+?)` \|", line) for line in lines]
    return [(match[1], match[2]) for match in found if match]


def names(make: Make, **more: Any) -> dict[str, Any]:
    return {**{name: make(array) for name, array in DATA.items()}, "np": np, **more}


def plain(value: Any) -> Any:
    """A value of any framework as numpy's."""
    return value.numpy() if hasattr(value, "numpy") else value


Answer = Callable[[str], Any]


def check(page: str, answer: Answer) -> None:
    """All rows of a page; every difference is told, not only the first."""
    ours = names(Tensor, Tensor=Tensor, dtypes=proofgrad.dtypes, proofgrad=proofgrad)
    wrong = []
    pairs = rows(page)
    assert len(pairs) >= 20, page
    for their_code, our_code in pairs:
        try:
            expected = answer(their_code)
            found = plain(eval(our_code, dict(ours)))
            if expected is not None:
                assert np.shape(found) == np.shape(expected), (np.shape(found), np.shape(expected))
                np.testing.assert_allclose(found, expected, rtol=TOLERANCE, atol=TOLERANCE)
        except Exception as error:  # noqa: BLE001  (told below)
            wrong.append(f"{their_code} | {our_code}: {type(error).__name__}: {error}")
    assert not wrong, "\n".join(wrong)


def test_rows_for_users_of_numpy_agree() -> None:
    theirs = names(np.array)
    check("coming-from-numpy.md", lambda code: eval(code, dict(theirs)))


def test_rows_for_users_of_torch_agree() -> None:
    torch = pytest.importorskip("torch")
    theirs = names(torch.tensor, torch=torch)
    check("coming-from-torch.md", lambda code: plain(eval(code, dict(theirs))))


IN_TINYGRAD = """
import pickle, sys
from tinygrad import Tensor
codes, data = pickle.load(sys.stdin.buffer)
names = {"Tensor": Tensor, **{name: Tensor(array) for name, array in data.items()}}
values = [eval(code, dict(names)) for code in codes]
plain = [v.clone("PYTHON").numpy() if isinstance(v, Tensor) else v for v in values]
sys.stdout.buffer.write(pickle.dumps(plain))
"""


def test_rows_for_users_of_tinygrad_agree() -> None:
    """In a process of its own: its interpreter, which needs no compiler, is chosen at import."""
    if importlib.util.find_spec("tinygrad") is None:
        pytest.skip("needs tinygrad")
    codes = [code for code, _ in rows("coming-from-tinygrad.md")]
    done = subprocess.run(
        [sys.executable, "-c", IN_TINYGRAD],
        input=pickle.dumps((codes, DATA)),
        capture_output=True,
        env={**os.environ, "DEV": "PYTHON"},
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    answers = dict(zip(codes, pickle.loads(done.stdout), strict=True))
    check("coming-from-tinygrad.md", answers.__getitem__)
