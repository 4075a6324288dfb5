"""Cells of recurrent networks: one step in time.

Owns: LSTMCell, GRUCell. The gates stand in the weights in the order of torch.
"""

from __future__ import annotations

from proofgrad import Tensor
from proofgrad.nn.layers import check_last_axis, parameter


class _Cell:
    """Weights of a number of gates, from the input and from the state before."""

    gates: int

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True) -> None:
        bound, rows = hidden_size**-0.5, self.gates * hidden_size
        self.input_size, self.hidden_size = input_size, hidden_size
        self.weight_ih = Tensor.uniform(rows, input_size, low=-bound, high=bound)
        self.weight_hh = Tensor.uniform(rows, hidden_size, low=-bound, high=bound)
        self.bias_ih = parameter(0.0, rows) if bias else None
        self.bias_hh = parameter(0.0, rows) if bias else None

    def _start(self, x: Tensor) -> Tensor:
        return Tensor.zeros(x.shape[0], self.hidden_size, dtype=x.dtype, device=x.device)

    def _sums(self, x: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
        check_last_axis(type(self).__name__, x, self.input_size)
        check_last_axis(f"the state of {type(self).__name__}", hidden, self.hidden_size)
        from_input = x.linear(self.weight_ih.transpose(), self.bias_ih)
        return from_input, hidden.linear(self.weight_hh.transpose(), self.bias_hh)


class LSTMCell(_Cell):
    """One step of a long short-term memory (Hochreiter and Schmidhuber, 1997).

    Shapes: x (n, input_size), hc two of (n, hidden_size) or None for zeros; the new two.
    """

    gates = 4

    def __call__(self, x: Tensor, hc: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        hidden, cell = (self._start(x), self._start(x)) if hc is None else hc
        from_input, from_hidden = self._sums(x, hidden)
        enter, forget, new, leave = (from_input + from_hidden).chunk(4, dim=1)
        cell = forget.sigmoid() * cell + enter.sigmoid() * new.tanh()
        return leave.sigmoid() * cell.tanh(), cell


class GRUCell(_Cell):
    """One step of a gated recurrent unit (Cho et al., 2014), as torch.nn.GRUCell.

    Shapes: x (n, input_size), h (n, hidden_size) or None for zeros; the new h.
    """

    gates = 3

    def __call__(self, x: Tensor, h: Tensor | None = None) -> Tensor:
        hidden = self._start(x) if h is None else h
        from_input, from_hidden = self._sums(x, hidden)
        reset, update, new = from_input.chunk(3, dim=1)
        reset_h, update_h, new_h = from_hidden.chunk(3, dim=1)
        candidate = (new + (reset + reset_h).sigmoid() * new_h).tanh()
        keep = (update + update_h).sigmoid()
        return (1 - keep) * candidate + keep * hidden
