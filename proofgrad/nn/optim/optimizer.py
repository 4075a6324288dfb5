"""What all optimisers share: parameters, their state, and a step.

Owns: which Tensors are trained, where state lives, how a change reaches a parameter. Does not own:
the change itself (sgd.py, adam.py). Everything that changes from step to step is a Tensor, so that
every step runs the kernels of the first.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable

from proofgrad import Tensor, dtypes
from proofgrad.core.ir.dtypes import DType
from proofgrad.core.messages import warn
from proofgrad.core.tensor.methods.base import describe
from proofgrad.core.tensor.methods.indexing.assign import without_a_way_back
from proofgrad.core.tensor.methods.made_once import made_once
from proofgrad.core.tensor.methods.nn.modes import check_mode
from proofgrad.core.tensor.runtime.device import canonical_device
from proofgrad.core.tensor.runtime.recording import recorder
from proofgrad.nn.options import KnownOptions


class Optimizer(KnownOptions):
    """Parameters, a learning rate, and a step. A subclass says how a step changes a parameter: in `_change` one of them, or,
    as in tinygrad, in `_step(params, grads)` all, whose result is what to take away from each, and Tensors of state. In `_next` it
    says so of one with its state, as a function whose graph is made once.

    Parameters are realised when the optimiser is made: then the first step is like all others, and
    a lazy expression (`Tensor.randn(784, 128) * 0.01`) can be one. State is float32 or wider and
    lives on `device`, by default that of the parameters. `fused` updates all parameters as one
    vector: fewer and larger kernels for the state.

    Raises: ValueError for a negative rate, or if nothing takes gradients.
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 0.001,
        device: str | None = None,
        fused: bool = False,
    ) -> None:
        if not isinstance(params, Iterable) or isinstance(params, Tensor):
            raise TypeError(
                f"an optimizer takes a list of Tensors, not {type(params).__name__}; see"
                f" nn.state.get_parameters"
            )
        unique = list({id(param): param for param in params}.values())
        for number, param in enumerate(unique):
            if not isinstance(param, Tensor):
                raise TypeError(
                    f"an optimizer takes a list of Tensors, and number {number} of it is {describe(param)}; see"
                    f" nn.state.get_parameters"
                )
        for param in unique:
            if param.requires_grad is None and param.dtype.is_float:
                param.requires_grad = True
        self.params = [param for param in unique if param.requires_grad]
        self.buffers = [param for param in unique if not param.requires_grad]
        if not self.params:
            raise ValueError("an optimizer needs a parameter that takes gradients")
        if isinstance(lr, str) or not hasattr(lr, "__float__"):
            raise TypeError(f"the learning rate is a number, not {lr!r}")
        if lr < 0:
            raise ValueError(f"the learning rate must be 0 or more, not {lr}")
        self.device = self.params[0].device if device is None else canonical_device(device)
        self.fused = fused
        self.lr = self._number(float(lr))
        Tensor.realize(self.lr, *unique)

    def __repr__(self) -> str:
        """Its numbers, and how many parameters it has; the rate as it is now."""
        plain = {
            key: value for key, value in vars(self).items() if isinstance(value, (bool, int, float))
        }
        told = [
            f"{key}={value!r}" for key, value in plain.items() if key not in ("fused",) or value
        ]
        count = sum([param.numel() for param in self.params])
        rate = [f"lr={self.lr.item():g}"] if recorder() is None and hasattr(self, "lr") else []
        return f"{type(self).__name__}({', '.join([*rate, *told])}; {len(self.params)} parameters of {count} elements)"

    def zero_grad(self) -> None:
        """Forget all gradients."""
        for param in self.params:
            param.grad = None

    def step(self) -> None:
        """Take one step, now. Parameters without a gradient stay; warns where none has one."""
        Tensor.realize(*self.schedule_step())

    def schedule_step(self) -> list[Tensor]:
        """Take one step, not computed yet: `loss.realize(*optimizer.schedule_step())`."""
        if not self.fused and all([param.grad is None for param in self.params]):
            warn(
                f"{type(self).__name__}.step() changes nothing: no parameter has a gradient; call backward on a loss"
                " that depends on them, after zero_grad"
            )
        check_mode(type(self).__name__, Tensor.training)
        own = getattr(self, "_step", None)
        if own is not None:
            return [*self._take_own_step(own), *self.params, *self.buffers]
        state = self._advance()
        if self.fused:
            self._step_as_one()
        else:
            for number, param in enumerate(self.params):
                if param.grad is not None:
                    value, gradient = _moved(param, self.device), _moved(param.grad, self.device)
                    _become(param, self._renewed(number, value, gradient))
        return [*state, *self.params, *self.buffers]

    def _take_own_step(
        self, step: Callable[..., tuple[list[Tensor], list[Tensor]]]
    ) -> list[Tensor]:
        """Take away what a subclass says of all parameters; gives its state. Raises: ValueError for another number of them."""
        params, gradients = self.params, [_gradient(param) for param in self.params]
        if self.fused:
            changes, state = step([self._line(params)], [self._line(gradients)])
            changes = self._parts(changes[0])
        else:
            changes, state = step(params, gradients)
        if len(changes) != len(params):
            raise ValueError(
                f"_step of {type(self).__name__} gives {len(changes)} changes for {len(params)} parameters"
            )
        for param, change in zip(params, changes):
            _become(param, _less(_moved(param, change.device), change))
        return list(state)

    def _renewed(self, number: int, value: Tensor, gradient: Tensor) -> Tensor:
        """What becomes of parameter `number`; its state goes on. What a subclass says in `_change` comes first."""
        if type(self)._change is not Optimizer._change:
            return _less(value, self._change(number, self._owned(value), self._owned(gradient)))
        new, *state = self._next(number, value, gradient)
        for tensor, found in zip(self._states(number), state, strict=True):
            _become(tensor, found)
        return new

    def _new_optim_param(self) -> list[Tensor]:
        """Zeros for each parameter, by the name that subclasses of tinygrad's call."""
        return self._state()

    def _step_as_one(self) -> None:
        """The step of all parameters, laid one after the other."""
        gradients = [_gradient(param) for param in self.params]
        new = self._renewed(0, self._line(self.params), self._line(gradients))
        for param, part in zip(self.params, self._parts(new), strict=True):
            _become(param, part._in_type(param.dtype))

    def _parts(self, line: Tensor) -> list[Tensor]:
        """What `_line` laid one after the other, each in its shape."""
        ends = itertools.accumulate([param.numel() for param in self.params])
        return [
            line[end - param.numel() : end].reshape(param.shape)
            for param, end in zip(self.params, ends, strict=True)
        ]

    def _line(self, tensors: list[Tensor]) -> Tensor:
        lines = [self._owned(tensor).flatten() for tensor in tensors]
        return lines[0].cat(*lines[1:])

    def _owned(self, tensor: Tensor) -> Tensor:
        """The value where the state lives, in the type of the state."""
        return in_state_type(_moved(tensor._detached(), self.device))

    def _state(self) -> list[Tensor]:
        """Zeros for each parameter: data, and in memory, so that the first step is compiled as all later ones are."""
        if self.fused:
            count = sum(param.numel() for param in self.params)
            state = [self._zeros((count,), self._widest())]
        else:
            state = [self._zeros(param.shape, state_dtype(param)) for param in self.params]
        return [state[0].realize(*state[1:]), *state[1:]]

    def _number(self, value: float) -> Tensor:
        """A number that changes from step to step, in the widest type of the state."""
        return Tensor([value], self.device, self._widest(), requires_grad=False)

    def _widest(self) -> DType:
        wide = any([param.dtype is dtypes.float64 for param in self.params])
        return dtypes.float64 if wide else dtypes.float32

    def _zeros(self, shape: tuple[int, ...], dtype: DType) -> Tensor:
        size = dtype.itemsize
        for axis in shape:
            size *= axis
        return Tensor(bytes(size), self.device, dtype, requires_grad=False).reshape(shape)

    def _advance(self) -> list[Tensor]:
        """All state Tensors, after those that count steps have moved on."""
        return []

    def _states(self, number: int) -> tuple[Tensor, ...]:
        """The state of parameter `number`, in the order in which `_next` gives what becomes of it."""
        return ()

    def _next(self, number: int, value: Tensor, gradient: Tensor) -> tuple[Tensor, ...]:
        """What becomes of parameter `number`, and of its state."""
        raise NotImplementedError(
            f"{type(self).__name__} does not say how a step changes a parameter: define"
            " _change(number, value, gradient) or _step(params, grads)"
        )

    def _change(self, number: int, value: Tensor, gradient: Tensor) -> Tensor:
        """What this step takes away from parameter `number`; updates its state."""
        raise NotImplementedError(f"{type(self).__name__} says in _next what becomes of a parameter")


class OptimizerGroup(Optimizer):
    """Several optimisers as one: for parts of a model with different rates.

    Example:
        OptimizerGroup(SGD([bias], 0.1), Adam(weights))
    """

    def __init__(self, *optimizers: Optimizer) -> None:
        if not optimizers:
            raise ValueError("an OptimizerGroup needs an optimizer")
        self.optimizers = optimizers
        self.params = [param for part in optimizers for param in part.params]
        self.buffers = [buffer for part in optimizers for buffer in part.buffers]

    def __getitem__(self, position: int) -> Optimizer:
        return self.optimizers[position]

    def schedule_step(self) -> list[Tensor]:
        """One step of each, not computed yet."""
        return [tensor for part in self.optimizers for tensor in part.schedule_step()]

    def _change(self, number: int, value: Tensor, gradient: Tensor) -> Tensor:
        raise TypeError("an OptimizerGroup changes nothing itself; its optimizers do")


def _become(tensor: Tensor, value: Tensor) -> None:
    """A parameter, or state, from now on names this value, from which no gradient passes."""
    value = _moved(value, tensor.device)
    if value.shape == tensor.shape and value.dtype is tensor.dtype:
        tensor._write(without_a_way_back(value._uop))
    else:
        tensor.assign(value._detached())


@made_once
def _less(value: Tensor, change: Tensor) -> Tensor:
    return less(value, change)


def less(value: Tensor, change: Tensor) -> Tensor:
    """The difference, in the type of the value, and in its shape if it has none: a rate is a line of one."""
    found = (value._in_type(change.dtype) - change)._in_type(value.dtype)
    return found if value.shape else found.reshape(())


def in_state_type(tensor: Tensor) -> Tensor:
    """A parameter, or its gradient, in the type in which a step computes."""
    return tensor._in_type(state_dtype(tensor))


def _moved(tensor: Tensor, device: str) -> Tensor:
    """It or, where it is on another device, the same values there."""
    return tensor if tensor.device == device else tensor.to(device)


def state_dtype(tensor: Tensor) -> DType:
    """The type in which a step computes what becomes of a parameter."""
    return dtypes.float64 if tensor.dtype is dtypes.float64 else dtypes.float32


def _gradient(param: Tensor) -> Tensor:
    if param.grad is None:
        raise ValueError(
            f"a step of all parameters at once needs the gradient of each, and one of shape {param.shape}"
            " has none; call backward first, or make the optimizer with fused=False"
        )
    return param.grad


def not_as_one(name: str, fused: bool) -> None:
    """Raises: ValueError if parameters whose steps are scaled one by one shall be updated as one vector."""
    if fused:
        raise ValueError(f"{name} scales the step of each parameter, so fused=True has no meaning")


def norm_ratio(value: Tensor, other: Tensor, scale: float = 1.0, decay: float = 0.0) -> Tensor:
    """scale * |value| / (|other| + decay * |value|), and 1 where a norm is 0. One element."""
    first = value.square().sum().sqrt()
    second = other.square().sum().sqrt()
    ratio = first * scale / (second + first * decay)
    return ((first > 0) & (second > 0)).where(ratio, 1.0)
