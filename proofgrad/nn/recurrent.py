"""Recurrent networks: cells, which take one step in time, and layers, which take all of them.

Owns: RNN, LSTM, GRU and their cells. Gates stand in the weights in the order of torch, parameters have torch's names.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from proofgrad import ShapeError, Tensor
from proofgrad.core.ir.shapes import is_plain, show
from proofgrad.core.tensor.methods.made_once import made_once
from proofgrad.nn.layers import check_last_axis, parameter
from proofgrad.nn.shown import Shown

State = tuple[Tensor, ...]  # the hidden state, which is given out, and what else a step hands on
# (sums from the input, the weights and the bias of the hidden state, the state before) to the state after: one graph for all steps.
Step = Callable[..., State]


@made_once
def tanh_step(from_input: Tensor, weight: Tensor, bias: Tensor | None, hidden: Tensor) -> State:
    """Elman, 1990."""
    return ((from_input + hidden.linear(weight.transpose(), bias)).tanh(),)


@made_once
def relu_step(from_input: Tensor, weight: Tensor, bias: Tensor | None, hidden: Tensor) -> State:
    """The same with relu."""
    return ((from_input + hidden.linear(weight.transpose(), bias)).relu(),)


@made_once
def lstm_step(
    from_input: Tensor, weight: Tensor, bias: Tensor | None, hidden: Tensor, cell: Tensor
) -> State:
    """Long short-term memory (Hochreiter and Schmidhuber, 1997)."""
    sums = from_input + hidden.linear(weight.transpose(), bias)
    enter, forget, new, leave = sums.chunk(4, dim=-1)
    cell = forget.sigmoid() * cell + enter.sigmoid() * new.tanh()
    return leave.sigmoid() * cell.tanh(), cell


@made_once
def gru_step(from_input: Tensor, weight: Tensor, bias: Tensor | None, hidden: Tensor) -> State:
    """Gated recurrent unit (Cho et al., 2014), reset behind the product, as in torch."""
    reset, update, new = from_input.chunk(3, dim=-1)
    reset_h, update_h, new_h = hidden.linear(weight.transpose(), bias).chunk(3, dim=-1)
    candidate = (new + (reset + reset_h).sigmoid() * new_h).tanh()
    keep = (update + update_h).sigmoid()
    return ((1 - keep) * candidate + keep * hidden,)


class _Cell(Shown):
    """Weights of a number of gates, from the input and from the state before."""

    gates: ClassVar[int]
    states: ClassVar[int] = 1

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True) -> None:
        bound, rows = hidden_size**-0.5, self.gates * hidden_size
        self.input_size, self.hidden_size = input_size, hidden_size
        self.weight_ih = Tensor.uniform(rows, input_size, low=-bound, high=bound)
        self.weight_hh = Tensor.uniform(rows, hidden_size, low=-bound, high=bound)
        self.bias_ih = parameter(0.0, rows) if bias else None
        self.bias_hh = parameter(0.0, rows) if bias else None

    def _after(self, step: Step, x: Tensor, state: State | None) -> State:
        if state is None:
            shape = (
                *x.shape[:-1],
                self.hidden_size,
            )  # one example has no axis of its own, as in torch
            zeros = Tensor.zeros(shape, dtype=x.dtype, device=x.device)
            state = (zeros,) * self.states
        check_last_axis(type(self).__name__, x, self.input_size)
        check_last_axis(f"the state of {type(self).__name__}", state[0], self.hidden_size)
        from_input = x.linear(self.weight_ih.transpose(), self.bias_ih)
        return step(from_input, self.weight_hh, self.bias_hh, *state)


class RNNCell(_Cell):
    """One step of a recurrent network: `nonlinearity` ("tanh" or "relu") of both sums.

    Shapes: x (.., input_size), h (.., hidden_size) or None for zeros; the new h.
    """

    gates = 1

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, nonlinearity: str = "tanh"
    ) -> None:
        super().__init__(input_size, hidden_size, bias)
        self.nonlinearity = _checked(nonlinearity)

    def __call__(self, x: Tensor, h: Tensor | None = None) -> Tensor:
        step = tanh_step if self.nonlinearity == "tanh" else relu_step
        return self._after(step, x, None if h is None else (h,))[0]


class LSTMCell(_Cell):
    """One step of a long short-term memory (Hochreiter and Schmidhuber, 1997).

    Shapes: x (.., input_size), hc two of (.., hidden_size) or None for zeros; the new two.
    """

    gates, states = 4, 2

    def __call__(self, x: Tensor, hc: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        hidden, cell = self._after(lstm_step, x, hc)
        return hidden, cell


class GRUCell(_Cell):
    """One step of a gated recurrent unit (Cho et al., 2014), as torch.nn.GRUCell.

    Shapes: x (.., input_size), h (.., hidden_size) or None for zeros; the new h.
    """

    gates = 3

    def __call__(self, x: Tensor, h: Tensor | None = None) -> Tensor:
        return self._after(gru_step, x, None if h is None else (h,))[0]


class _Layers(Shown):
    """Layers over all steps of time, one on the other; a second direction where that is asked.

    The steps are written out, so a program is compiled for each length; kernels are shared by all steps.
    """

    gates: ClassVar[int]
    states: ClassVar[int] = 1

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
    ) -> None:
        if proj_size:
            raise ValueError(
                f"{type(self).__name__} has no projection of its state; proj_size is 0, not {proj_size}"
            )
        if min(input_size, hidden_size, num_layers) < 1:
            raise ShapeError(
                f"{type(self).__name__} of {input_size} inputs, {hidden_size} hidden values and {num_layers} layers"
            )
        if not 0 <= dropout <= 1:
            raise ValueError(f"dropout needs a probability, not {dropout}")
        self.input_size, self.hidden_size, self.num_layers = input_size, hidden_size, num_layers
        self.batch_first, self.dropout, self.bidirectional = batch_first, dropout, bidirectional
        bound, rows = hidden_size**-0.5, self.gates * hidden_size
        for layer in range(num_layers):
            columns = hidden_size * self._directions if layer else input_size
            for suffix in self._suffixes(layer):
                for name, size in (("weight_ih", columns), ("weight_hh", hidden_size)):
                    weight = Tensor.uniform(rows, size, low=-bound, high=bound)
                    setattr(self, name + suffix, weight)
                for name in ("bias_ih", "bias_hh"):
                    values = Tensor.uniform(rows, low=-bound, high=bound) if bias else None
                    setattr(self, name + suffix, values)

    @property
    def _directions(self) -> int:
        return 2 if self.bidirectional else 1

    def _suffixes(self, layer: int) -> list[str]:
        return [f"_l{layer}", f"_l{layer}_reverse"][: self._directions]

    def _step(self) -> Step:
        raise NotImplementedError

    def _run(self, x: Tensor, given: State | None) -> tuple[Tensor, list[Tensor]]:
        """The output of the last layer, and of each state the last of all layers and directions."""
        name, is_batch = type(self).__name__, x.ndim == 3
        if x.ndim not in (2, 3):
            raise ShapeError(f"{name} takes (time, n, {self.input_size}), not {show(x.shape)}")
        check_last_axis(name, x, self.input_size)
        if not is_batch:
            x = x.unsqueeze(1)
        elif self.batch_first:
            x = x.transpose(0, 1)
        states = self._first(x, given, is_batch)
        last: list[State] = []
        for layer in range(self.num_layers):
            outputs: list[Tensor] = []
            if layer and self.dropout:
                x = x.dropout(self.dropout)
            for suffix in self._suffixes(layer):
                start = tuple([state[len(last)] for state in states])
                output, end = self._over_time(x, start, suffix)
                outputs.append(output)
                last.append(end)
            x = outputs[0] if len(outputs) == 1 else outputs[0].cat(outputs[1], dim=-1)
        ends = [Tensor.stack(*[state[k] for state in last]) for k in range(self.states)]
        if not is_batch:
            return x.squeeze(1), [end.squeeze(1) for end in ends]
        return (x.transpose(0, 1) if self.batch_first else x), ends

    def _first(self, x: Tensor, given: State | None, is_batch: bool) -> State:
        shape = (self.num_layers * self._directions, x.shape[1], self.hidden_size)
        if given is None:
            return (Tensor.zeros(*shape, dtype=x.dtype, device=x.device),) * self.states
        found = given if is_batch else tuple([state.unsqueeze(1) for state in given])
        for state in found:
            if state.shape != shape:
                raise ShapeError(
                    f"a state of {type(self).__name__} is {show(shape)} here, not {show(state.shape)}"
                )
        return found

    def _over_time(self, x: Tensor, state: State, suffix: str) -> tuple[Tensor, State]:
        weight_ih, weight_hh, bias_ih, bias_hh = [
            getattr(self, name + suffix)
            for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        ]
        step, times, length = self._step(), range(x.max_shape[0]), x.shape[0]
        is_variable = not is_plain((length,))
        from_input = x.linear(weight_ih.transpose(), bias_ih)
        if is_variable:
            from_input = from_input.pad_to(len(times), None, None)
        outputs: dict[int, Tensor] = {}
        for time in reversed(times) if suffix.endswith("_reverse") else times:
            new = step(from_input[time], weight_hh, bias_hh, *state)
            if is_variable:  # beyond the end the state stays
                is_there = Tensor(length, device=x.device) > time
                new = tuple([is_there.where(made, old) for made, old in zip(new, state)])
            state = new
            outputs[time] = state[0]
        if not outputs:
            return Tensor.zeros(0, *state[0].shape, dtype=x.dtype, device=x.device), state
        return Tensor.stack(*[outputs[time] for time in times]).shrink_to(length, None, None), state


class RNN(_Layers):
    """Layers of `nonlinearity` ("tanh" or "relu") over time, as torch.nn.RNN.

    Shapes: x (time, n, input_size), or (n, time, ..) with `batch_first`, or without the axis n; h (layers * directions, n,
    hidden_size) or None for zeros. Gives the outputs (time, n, directions * hidden_size) and the last h.

    Example:
        from proofgrad import nn

        outputs, h = nn.RNN(8, 16)(Tensor.ones(5, 2, 8))  # (5, 2, 16), (1, 2, 16)
    """

    gates = 1

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
    ) -> None:
        super().__init__(
            input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional
        )
        self.nonlinearity = _checked(nonlinearity)

    def _step(self) -> Step:
        return tanh_step if self.nonlinearity == "tanh" else relu_step

    def __call__(self, x: Tensor, h: Tensor | None = None) -> tuple[Tensor, Tensor]:
        outputs, (last,) = self._run(x, None if h is None else (h,))
        return outputs, last


class LSTM(_Layers):
    """Layers of long short-term memory over time, as torch.nn.LSTM.

    Shapes: as of RNN, with two states (h, c), each (layers * directions, n, hidden_size).

    Example:
        from proofgrad import nn

        outputs, (h, c) = nn.LSTM(8, 16, num_layers=2)(Tensor.ones(5, 2, 8))  # (5, 2, 16), (2, 2, 16) twice
    """

    gates, states = 4, 2

    def _step(self) -> Step:
        return lstm_step

    def __call__(
        self, x: Tensor, hc: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        outputs, (hidden, cell) = self._run(x, hc)
        return outputs, (hidden, cell)


class GRU(_Layers):
    """Layers of gated recurrent units over time, as torch.nn.GRU. Shapes: as of RNN."""

    gates = 3

    def _step(self) -> Step:
        return gru_step

    def __call__(self, x: Tensor, h: Tensor | None = None) -> tuple[Tensor, Tensor]:
        outputs, (last,) = self._run(x, None if h is None else (h,))
        return outputs, last


def _checked(nonlinearity: str) -> str:
    if nonlinearity not in ("tanh", "relu"):
        raise ValueError(f"nonlinearity is 'tanh' or 'relu', not {nonlinearity!r}")
    return nonlinearity
