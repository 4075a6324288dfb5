"""What an eager call of a known graph asks of Python: as many calls of functions as a kernel of a few elements takes time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from proofgrad import Tensor
from proofgrad.core import settings
from proofgrad.core.ir.dtypes import dtypes

# In a process of their own: what other tests leave alive, as parameters, is looked at by each call.
PROGRAM = """
import json
from counted_calls import calls
from proofgrad import Tensor, nn

X = Tensor([[float(k * 5 + j) for j in range(5)] for k in range(4)]).realize()
W = Tensor([[float(k - j) for j in range(5)] for k in range(4)]).realize()

def count(call):
    for _ in range(4):  # the first run, runs into memory that is kept, and caches
        call()
    return calls(call, ("call",))

found = [
    count(lambda: (X + 1).realize()),
    count(lambda: (X + W).realize()),
    count(lambda: X.exp().realize()),
    count(lambda: X.sum().realize()),
    count(lambda: X.sum().item()),
    count(lambda: (X @ W.T).realize()),
]
layer = nn.Linear(5, 3)
optimizer = nn.optim.SGD(nn.state.get_parameters(layer), lr=0.01)

def step():
    with Tensor.train():
        optimizer.zero_grad()
        layer(X).square().mean().backward()
        optimizer.step()

print(json.dumps([*found, count(step)]))
"""
MOST = [40, 42, 43, 56, 79, 67, 610]


def test_known_calls_and_a_step_of_sgd_take_few_calls_of_functions() -> None:
    asked = {
        *settings.READ_BY_STAGES,
        "DEBUG",
    }  # an environment that asks for nothing, as that of a program
    environment = {name: value for name, value in os.environ.items() if name not in asked}
    environment["PYTHONPATH"] = str(Path(__file__).parent)
    command = [sys.executable, "-c", PROGRAM]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    found = json.loads(ran.stdout)
    assert [count <= most for count, most in zip(found, MOST, strict=True)] == [True] * 7, found


@pytest.mark.parametrize("dtype", [*dtypes.all, *dtypes.fp8s])
def test_operands_in_their_own_type_give_what_others_give(dtype: object) -> None:
    """A result that needs no rounding takes a shorter way than one of a type that is not computed with."""
    one = Tensor([1, 0], dtype=dtype)  # type: ignore[arg-type]
    beside = Tensor([[0, 1], [1, 1]], dtype=dtype)  # type: ignore[arg-type]
    assert (one + beside).dtype is (beside + one).dtype is (one | beside if one.dtype is dtypes.bool else one * beside).dtype is one.dtype  # fmt: skip
    assert [[bool(v) for v in row] for row in (one + beside).tolist()] == [[True, True], [True, True]]  # fmt: skip
    wide = Tensor([1.0, 2.0], dtype=dtypes.float64)
    assert (wide + one).dtype is (one + wide).dtype is dtypes.float64
