"""A replay for arguments that are what those of the one before were, so that little is left to find out.

Owns: the question whether that is so, this replay. Does not own: all others (replay.py), which look up where everything is.

It is for replays of one native call that write to nothing but their own small results. Such a call may take less than a
microsecond, and ten calls of Python functions take one: what happens each time is one function.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from weakref import ref

from proofgrad.core import settings
from proofgrad.core.tensor.jit.nested import Hole, TensorKind, filled
from proofgrad.core.tensor.jit.slots import from_arguments, no_node
from proofgrad.core.tensor.methods.base import GRADIENTS
from proofgrad.core.tensor.runtime.counters import GlobalCounters
from proofgrad.core.tensor.runtime.execute import LISTENER
from proofgrad.core.tensor.runtime.memory import memory_at_hand
from proofgrad.core.tensor.runtime.owners import is_result_free
from proofgrad.core.tensor.runtime.recording import recorder
from proofgrad.core.tensor.tensor import Tensor

if TYPE_CHECKING:
    from proofgrad.core.tensor.jit.replay import Replay
    from proofgrad.core.tensor.jit.slots import Made
    from proofgrad.core.tensor.runtime.result_pool import Spare

_ASKED = settings.encoded("JIT", "DEBUG", "DEBUG_NANS")
_ASKED_IF_EXACT = settings.encoded("JIT", "DEBUG", "DEBUG_NANS", *settings.NOT_EXACT)


class SameCall:
    """Such replays of one recording with an `only_launch`, of a function whose arguments are Tensors without names."""

    __slots__ = (
        "_asked",
        "_is_plain",
        "_kinds",
        "_number",
        "_passes",
        "_reads",
        "_replay",
        "_slots",
    )

    def __init__(self, replay: Replay, kinds: Sequence[TensorKind]) -> None:
        self._replay, self._kinds = replay, kinds
        is_exact = not replay.exactness  # then one look says that nothing looser is asked for
        self._asked = _ASKED_IF_EXACT if is_exact else _ASKED
        self._is_plain = is_exact and replay.training is None
        self._passes = any([made.passed for made in replay.made])
        self._slots = {k: slot for slot, k in replay.arguments}
        result = replay.result
        is_one = isinstance(result, Hole) and not result.is_argument
        self._number: int | None = result.number if is_one else None
        plain = [read.source.argument is None and not read.source.gradient for read in replay.reads]
        self._reads = [
            (read, read.source.tensor if is_plain else None)
            for read, is_plain in zip(replay.reads, plain)
        ]

    def run(self, arguments: Sequence[Any]) -> Any:
        """What the function gives. None, and nothing is done, where there is more to find out. For one thread at a time."""
        if settings.is_any_set(self._asked) or LISTENER.add is not None or recorder() is not None:
            return None
        replay = self._replay
        nodes, objects = replay.nodes, replay.objects
        if len(arguments) != len(nodes) or GRADIENTS.are_off is not replay.gradients_are_off:
            return None
        if not self._is_plain and not replay.is_as_exact():
            return None
        are_others = False
        for k, one in enumerate(arguments):
            last = objects[k]()
            if last is not None and one is last and last._uop is nodes[k]():
                continue
            if not self._is_taken(k, one):
                return None
            are_others = True
        for read, find in self._reads:
            tensor = read.source.get(arguments) if find is None else find()
            if tensor is None or tensor._uop is not read.node or replay.memory[read.slot] is None:
                return None
        spares = []
        for made in replay.made:
            spare = made.pointed
            if spare is None or not is_result_free(spare):
                spare = self._pointed_elsewhere(made)
                if spare is None:
                    return None
            spares.append(spare)
        if replay.value_check is not None:
            self._check(arguments, spares)
        replay.only_launch()  # type: ignore[misc]
        counters = GlobalCounters
        counters.kernel_count += replay.kernel_count
        counters.global_ops += replay.flops
        counters.global_mem += replay.nbytes
        for made, spare in zip(replay.made, spares) if self._passes else ():
            if made.passed:
                if are_others:
                    made.given = from_arguments(made.passed, arguments, made.origins)
                spare.made_of.given = made.given
        if self._number is not None:
            return Tensor._new(spares[self._number].node, replay.device)
        results = [Tensor._new(spare.node, replay.device) for spare in spares]
        return filled(replay.result, results, arguments)

    def _is_taken(self, k: int, one: Any) -> bool:
        """Whether the program reads this argument from now on: it is in memory, and as good as the one that was recorded."""
        replay = self._replay
        if not isinstance(one, Tensor) or not replay.aliases.is_value(k, one):
            return False
        node = one._uop
        memory = memory_at_hand(node)
        if memory is None or not self._kinds[k].fits(one, {}):
            return False
        replay.nodes[k] = no_node  # until the program has been told
        if k in self._slots:
            replay.program.changed(self._slots[k], memory)
        replay.objects[k], replay.nodes[k] = ref(one), ref(node)
        return True

    def _pointed_elsewhere(self, made: Made) -> Spare | None:
        """Memory of a result that nobody holds, which the program writes to from now on."""
        spare = made.free_spare()
        if spare is not None:
            made.pointed = None  # until the program has been told
            self._replay.program.changed(made.slot, spare.handle)
            made.pointed = spare
        return spare

    def _check(self, arguments: Sequence[Tensor], results: Sequence[Spare]) -> None:
        """The table of the program beside the Tensors that there are now. Raises: CheckError."""
        replay = self._replay
        assert replay.value_check is not None
        for made, spare in zip(replay.made, results):
            made.again, replay.memory[made.slot] = spare, spare.handle
        replay.check(replay.value_check, arguments)
        for made in replay.made:
            replay.memory[made.slot] = None
