"""Graphs that are found by their form are those that numbering gives; kernels of one form are compiled once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from proofgrad import Tensor, TinyJit, dtypes, nn
from proofgrad.core.tensor.runtime import canonical, changing
from proofgrad.core.tensor.runtime.canonical import COMPUTED, numbered
from proofgrad.core.tensor.runtime.known_graphs import form_of
from proofgrad.core.tensor.runtime.realize import compiler


def data(*shape: int) -> Tensor:
    return Tensor(np.arange(np.prod(shape), dtype=np.float32).reshape(shape)).realize()


def programs(a: Tensor, b: Tensor) -> list[Tensor]:
    both = a + b
    return [
        both,
        a + a,
        a - b,
        b - a,
        a * 0.0,
        a * -0.0,
        a * 1,
        a * True,
        (a * 2).cast(dtypes.int32),
        (a * 2).cast(dtypes.int64),
        a.sum(0),
        a.sum(1),
        both * both.T,
        both.detach() * both.contiguous(),
        a.reshape(-1),
        a.T + b,
        (a < b).where(a, 1.0),
        Tensor.arange(4) + 1,
        a[1:3] + b[1:3],
        a[1:3] + a[2:4],
        a[1:3] + a[1:3].T.T,
        a[2] * 2 + a[2:3] - b[3],
        (a.reshape(-1)[4:8] + b[1]).sum(),
        a[:, 2] + 1,
        both[1:3] + a[1:3],
        a[1:3],
        a.contiguous()[:3],
    ]


def test_a_graph_that_is_found_is_the_one_that_numbering_makes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(changing, "MOST_OWN", 99)  # each keeps its numbers
    for _ in range(2):  # the second time all are known
        for one in programs(data(4, 4), data(4, 4)):
            values: dict[str, int] = {}
            made, inputs = canonical._numbered([one._uop], "CPU", values, True)
            assert numbered([one._uop], "CPU", {}, True) == (made, inputs)


def test_forms_are_equal_where_numbered_graphs_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changing, "MOST_OWN", 99)  # each keeps its numbers
    forms: dict[Any, Any] = {}
    for _ in range(2):
        for one in programs(data(4, 4), data(4, 4)):
            found = form_of([one._uop], "CPU", COMPUTED, canonical._part)
            graph, _ = canonical._numbered([one._uop], "CPU", {}, True)
            if found is not None:
                assert forms.setdefault(found[0], graph) is graph
    assert len(set(forms.values())) == len(forms) > 12


def test_what_was_computed_stands_for_its_graph() -> None:
    a, b = data(3, 3), data(3, 3)
    w = Tensor([[1.0, 2.0, 3.0]], requires_grad=True)
    for _ in range(3):
        y = (a + b) * w  # the node stays, for gradients
        y.realize()
        assert np.array_equal((y + 1).numpy(), (a.numpy() + b.numpy()) * w.numpy() + 1)


def test_the_order_of_buffers_is_that_of_the_graph() -> None:
    a, b = data(3, 3), data(3, 3) * 2
    b.realize()
    for one, other in ((a, b), (b, a), (a, a)):
        assert np.array_equal((one - other.T).numpy(), one.numpy() - other.numpy().T)


@pytest.mark.parametrize("make", [nn.RNNCell, nn.LSTMCell, nn.GRUCell])
def test_steps_over_time_share_their_kernels(make: Any) -> None:
    cell = make(2, 6)
    for parameter in nn.state.get_parameters(cell):
        parameter.assign(parameter.detach()).realize()
    counts = []
    for steps in (4, 9):
        x, before = data(3, steps, 2), compiler().kernels_compiled

        def run(x: Tensor = x, steps: int = steps) -> Tensor:
            state = None
            for t in range(steps):
                state = cell(x[:, t], state)
            return (state[0] if isinstance(state, tuple) else state).sum()  # type: ignore[index,union-attr]

        run().realize()
        counts.append(compiler().kernels_compiled - before)
        expected = run(x + 0).item()
        assert run().item() == pytest.approx(expected, rel=1e-5)
    assert counts[1] <= counts[0] + 3, counts


def test_a_recorded_loop_reads_each_step() -> None:
    x = data(3, 5, 2)

    @TinyJit
    def weighted(x: Tensor) -> Tensor:
        total = x[:, 0] * 1
        for t in range(1, 5):
            total = (total + x[:, t] * t).contiguous()
        return total

    expected = sum(x.numpy()[:, t] * max(t, 1) for t in range(5))
    for _ in range(4):
        assert np.array_equal(weighted(x).numpy(), expected)
