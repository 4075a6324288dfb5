"""TinyJit: a function of Tensors recorded once and replayed after, without its Python.

Owns: the three lives of a jitted function (run, record, replay), the checks that a replay means the
same as the function. Does not own: what arguments and results are made of (nested.py), the recorded
program (replay.py), who holds which Tensor (jit/live_tensors.py).

The first call runs as ever. The second runs too, but nothing is computed before it returns: then
everything that it gives, writes or leaves in `.grad` is one graph, whose plan is kept. Later calls
give the plan the memory of their arguments. What the function reads beside its arguments is looked
up again at each replay; so a Tensor that was written to in between is not forgotten.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable
from typing import Any, Generic, Self, TypeVar, overload
from weakref import WeakKeyDictionary, ref

from proofgrad.core import settings
from proofgrad.core.compile.plan.collector import rare_collection
from proofgrad.core.ir.uop import UOp
from proofgrad.core.messages import say
from proofgrad.core.tensor.data.errors import JitError
from proofgrad.core.tensor.jit.aliasing import OtherGradients, Outdated
from proofgrad.core.tensor.jit.alone import alone, alone_with
from proofgrad.core.tensor.jit.live_tensors import Holders, Source
from proofgrad.core.tensor.jit.nested import (
    Hole,
    Leaf,
    check_values,
    collect,
    difference,
    filled,
    kinds,
    leaves,
    pattern,
    template,
)
from proofgrad.core.tensor.jit.record import record
from proofgrad.core.tensor.jit.replay import Replay
from proofgrad.core.tensor.jit.same_call import SameCall
from proofgrad.core.tensor.jit.slots import Target, from_arguments
from proofgrad.core.tensor.lost_ways import note_origins
from proofgrad.core.tensor.methods.base import name_of
from proofgrad.core.tensor.methods.training import ShowsTraining
from proofgrad.core.tensor.runtime import realize as machine
from proofgrad.core.tensor.runtime.memory import twin
from proofgrad.core.tensor.runtime.recording import recorder, recording, watch_writes
from proofgrad.core.tensor.runtime.report import recording_line
from proofgrad.core.tensor.tensor import Tensor

Result = TypeVar("Result")
KEPT = 8  # recordings of one function, for calls whose arguments are related in several ways
_ONE_AT_A_TIME = threading.RLock()  # a recording changes its arguments until it is done
_PLAIN = (type(None), bool, int, float, str, bytes, UOp)


class TinyJit(Generic[Result]):
    """A decorator: the function is recorded on its second call and replayed from the third.

    Arguments and results are Tensors and plain values, alone or in lists, tuples and dicts. Shapes,
    types and devices of Tensors and all plain values must stay as they were; a `Variable` may have
    another value. A call within `no_grad`, or in the other mode of training where the function looks at that, is recorded for itself; where other Tensors
    ask for gradients, it runs and is recorded again. Each call gives fresh
    results: those of the call before keep their values. Tensors that the function writes to with
    assign, `+=` or `x[...] = v` are written to by replays; random numbers go on. A call whose
    arguments are related in another way (one Tensor twice, one that the function writes to by a name
    of its own, a view to write through) is recorded for itself.
    Raises: JitError for what cannot be replayed, and for arguments that are not alike.

    Example:
        @TinyJit
        def step(x):
            return (x * 2).sum()
    """

    __name__: str

    def __new__(cls, fxn: Any = None, *, prune: bool = False) -> Self:
        """With `prune` alone: the decorator. It has no effect: a replay computes all that the function does."""
        return cls if fxn is None else object.__new__(cls)  # type: ignore[return-value]

    @overload
    def __init__(self: TinyJit[Any], fxn: None = None, *, prune: bool = False) -> None: ...

    @overload
    def __init__(self, fxn: Callable[..., Result], *, prune: bool = False) -> None: ...

    def __init__(self, fxn: Any = None, *, prune: bool = False) -> None:
        functools.update_wrapper(self, fxn)
        self.__name__ = name_of(fxn)
        self.fxn: Callable[..., Result] = fxn
        self._of_instance: WeakKeyDictionary[Any, TinyJit[Result]] = WeakKeyDictionary()
        self.reset()

    def reset(self) -> None:
        """Forget what was recorded; the next two calls run and record again."""
        self.cnt = 0
        self.captured: Replay | None = None  # that was used last
        self._kept: list[Replay] = []  # the latest first
        self._shown: set[int] = set()  # results that are memory of inputs, but for a copy
        self._expected: tuple[Any, Any] = ((), {})  # patterns of args and kwargs
        self._is_flat = False  # all arguments are Tensors, none has a name

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """Methods: each object has a recording of its own."""
        if instance is None:
            return self
        if instance not in self._of_instance:
            of_class = ref(instance)
            method = functools.wraps(self.fxn)(lambda *a, **k: self.fxn(of_class(), *a, **k))
            self._of_instance[instance] = TinyJit(method)
        return self._of_instance[instance]

    def __reduce__(self) -> str | tuple[Any, ...]:
        """Pickles hold the function, which is recorded again; or the name of this, where it stands in the function's place."""
        name: str = getattr(self.fxn, "__qualname__", "")
        if _found_by_name(getattr(self.fxn, "__module__", ""), name) is self:
            return name
        return (TinyJit, (self.fxn,))

    @property
    def kernel_count(self) -> int:
        """Kernels of a replay; 0 before there is a recording."""
        return 0 if self.captured is None else self.captured.kernel_count

    @property
    def arena_bytes(self) -> int:
        """Bytes that a replay's kernels use between arguments and results; 0 before a recording."""
        return 0 if self.captured is None else self.captured.arena.nbytes

    def __call__(self, *args: Any, **kwargs: Any) -> Result:
        recorded = self.captured
        if recorded is not None and recorded.same_call is not None and self._is_flat and not kwargs:
            found = alone_with(recorded.lock, recorded.same_call, args)
            if found is not None:
                return found  # type: ignore[no-any-return]
        if settings.number("JIT", 1) == 0 or recorder() is not None:
            return self.fxn(*args, **kwargs)
        if recorded is not None:
            return self._replay(recorded, args, kwargs)
        result = self._record(args, kwargs) if self.cnt else self._run(args, kwargs)
        self.cnt += 1
        return result

    def _run(self, args: Any, kwargs: Any) -> Result:
        """The plain function; what it gives and writes is computed, so that it can be recorded."""
        with watch_writes() as written:
            result: Result = self.fxn(*args, **kwargs)
        tensors = [leaf.value for leaf in leaves(result) if isinstance(leaf.value, Tensor)]
        Tensor.realize(*tensors, *written) if tensors or written else None
        return result

    @rare_collection()
    def _record(self, args: Any, kwargs: Any) -> Result:
        result: Result = alone(_ONE_AT_A_TIME, self._record_alone, args, kwargs)
        return result

    def _record_alone(self, args: Any, kwargs: Any) -> Result:
        recording = _Recording(self.__name__, [*leaves(args), *leaves(kwargs)], self._shown)
        expected = (pattern(args), pattern(kwargs))
        values: dict[str, int] = {}
        collect((args, kwargs), expected, [], values)
        check_values(self.__name__, values)
        result: Result = recording.run(self.fxn, args, kwargs)
        found = recording.finish(result, bool(self._kept))
        if found is not None:
            if self._kept:
                found.aliases.compare(self._kept[0].aliases)
            found.result = template(result, recording.hole)
            self._expected = expected
            self._is_flat = not kwargs and all([isinstance(one, Tensor) for one in args])
            if found.only_launch is not None:
                found.same_call = SameCall(found, kinds(expected)).run
            self._kept = [found, *self._kept[: KEPT - 1]]
            self.captured = found
            if settings.debug_level() >= 1:
                say(recording_line(self.__name__, self.kernel_count, self.captured.arena))
        return result

    def _replay(self, recorded: Replay, args: Any, kwargs: Any) -> Result:
        try:
            if self._is_flat and not kwargs and recorded.knows(args):
                return filled(recorded.result, recorded.run(args, {}), args)  # type: ignore[no-any-return]
            arguments, values = self._collected(args, kwargs)
            if recorded.same_call is not None and not self._is_flat and not values:
                found = alone_with(recorded.lock, recorded.same_call, arguments)
                if found is not None:
                    return found  # type: ignore[no-any-return]
            if not recorded.fits(arguments, values):
                fitting = [one for one in self._kept if one.fits(arguments, values)]
                if not fitting:
                    return self._record(args, kwargs)
                self.captured = recorded = fitting[0]
            results = recorded.run(arguments, values)
            return filled(recorded.result, results, arguments)  # type: ignore[no-any-return]
        except OtherGradients:
            self.reset()
            self.cnt = 1
            return self._run(args, kwargs)
        except Outdated:
            self._kept = [one for one in self._kept if one is not recorded]
        return self._record(args, kwargs)

    def _collected(self, args: Any, kwargs: Any) -> tuple[list[Tensor], dict[str, int]]:
        """The Tensors and the values of variables. Raises: JitError if they are not alike."""
        arguments: list[Tensor] = []
        values: dict[str, int] = {}
        of_args, of_kwargs = self._expected
        if not (
            collect(args, of_args, arguments, values)
            and collect(kwargs, of_kwargs, arguments, values)
        ):
            check_values(self.__name__, values)
            expected, got = difference((args, kwargs), self._expected)
            raise JitError(
                f"{self.__name__} was recorded with {expected}, and now gets {got}; make a TinyJit for"
                f" each kind of arguments, or call reset() to record again"
            )
        check_values(self.__name__, values) if values else None
        return arguments, values


# -- recording --------------------------------------------------------------------------------------


def _found_by_name(module: str, name: str) -> Any:
    """What stands in a module under this name, which may lead through classes: where pickle looks."""
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


class _Recording:
    """One call of the function with everything that it wants computed put off to the end."""

    def __init__(self, name: str, given: list[Leaf], shown: set[int]) -> None:
        """`shown`: numbers of results that former recordings found to be memory of inputs; what this one finds is added."""
        self.name, self.shown = name, shown
        self.leaves = [leaf for leaf in given if isinstance(leaf.value, Tensor)]
        self.arguments: list[Tensor] = [leaf.value for leaf in self.leaves]
        self.positions: dict[int, UOp] = {}  # by the number of the argument
        self.random: dict[UOp, Callable[[], bytes]] = {}
        self.choices: dict[UOp, bool] = {}  # sizes, and whether they were 0 or more
        self.derives = False  # whether it called `backward`
        self.asks_for_training = False  # whether the function looked at `Tensor.training`
        self.holders: Holders
        self.numbers: dict[int, int] = {}
        self.returned: list[Source] = []  # Tensors that were there before, and that it gives

    # what realize.py tells a recorder

    def defer(self, roots: list[UOp]) -> list[UOp]:
        return list(roots)

    def before_write(self, tensor: Any) -> None:
        self.holders.note_write(tensor)

    def before_accumulate(self, leaf: Any) -> None:
        self.derives = True
        self.holders.note_accumulate(leaf)

    def refuse_read(self) -> None:
        raise JitError(
            f"{self.name} reads a value while it is recorded; a replay would use that value for"
            f" ever. Return the Tensor and read it outside, or choose with where"
        )

    def note_random(self, key: UOp, fresh: Callable[[], bytes]) -> None:
        self.random[key] = fresh

    def note_choice(self, size: UOp, holds: bool) -> None:
        self.choices[size] = holds

    # the call

    def run(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        self._stand_in()
        self.holders = Holders(self.arguments)
        looks = ShowsTraining.looks
        with recording(self):
            try:
                result = function(*args, **kwargs)
                self.asks_for_training = ShowsTraining.looks > looks
                return result
            except BaseException:
                self._give_back()
                raise

    def _stand_in(self) -> None:
        """Each argument becomes a buffer of its own, unlike all that the function can know."""
        first = {id(tensor): k for k, tensor in reversed([*enumerate(self.arguments)])}
        self.before = [machine.flat_buffer(t._uop, t.device) for t in self.arguments]
        self._own = {k: self.arguments[k]._uop for k in first.values()}
        self.positions = {k: twin(self.before[k]) for k in first.values()}
        for k, position in self.positions.items():
            self.arguments[k]._become(position)

    def _give_back(self) -> None:
        for k, position in self.positions.items():
            if self.arguments[k]._uop is position:
                self.arguments[k]._become(self._own[k])

    def finish(self, result: Any, may_be_empty: bool) -> Replay | None:
        """Compute what was put off. None if there is something to settle before it can be kept.

        `may_be_empty`: for these arguments there may be nothing to compute, as in `x.assign(x)`.
        """
        targets = self._targets(result)
        try:
            found = record(self, targets) if targets or not may_be_empty else None
        finally:
            self._give_back()
        for target in targets:
            given = from_arguments(target.passed, self.arguments, target.origins)
            if given or target.origins:
                note_origins(target.tensor._uop, target.origins, given)
        return found

    def _targets(self, result: Any) -> list[Target]:
        """Every Tensor that a replay has to compute, each once, and what becomes of it."""
        targets: dict[int, Target] = {}
        existing = self.holders
        for leaf in leaves(result):
            value = leaf.value
            if isinstance(value, Tensor):
                if existing.knows(value):
                    self.returned.append(existing.source_of(value))
                else:
                    self.numbers[id(value)] = len(targets)
                    targets.setdefault(id(value), Target(value, is_result=True))
            elif not isinstance(value, _PLAIN):
                raise JitError(
                    f"{self.name} gives a {type(value).__name__} at {leaf.path or 'the top'}; a jitted"
                    f" function gives Tensors and plain values, alone or in lists, tuples and dicts"
                )
        for tensor, source in existing.noted():
            targets[id(tensor)] = Target(tensor, source=source)
        for tensor, grad in existing.new_gradients():
            known = targets.get(id(grad))
            owner = existing.source_of(tensor)
            targets[id(grad)] = Target(grad, is_result=known is not None, gradient_of=owner)
        self.numbers = {key: k for k, key in enumerate(targets)}
        self.results = [k for k, target in enumerate(targets.values()) if target.is_result]
        return list(targets.values())

    def hole(self, value: Tensor) -> Any:
        for k, argument in enumerate(self.arguments):
            if argument is value:
                return Hole(k, is_argument=True)
        if id(value) in self.numbers and self.numbers[id(value)] in self.results:
            return Hole(self.numbers[id(value)])
        return value  # a Tensor that was there before: it is written to, or stays
