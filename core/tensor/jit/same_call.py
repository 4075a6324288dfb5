"""A replay for the arguments of the one before: all but its results is where it was, so that little is left to do.

Owns: the question whether that is so, this replay. Does not own: all others (replay.py), which find out where things are.

It is for replays of one native call that write to nothing but their own small results.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from proofgrad.core.tensor.runtime.counters import GlobalCounters
from proofgrad.core.tensor.runtime.owners import owners_of_result
from proofgrad.core.tensor.tensor import Tensor

if TYPE_CHECKING:
    from proofgrad.core.tensor.jit.replay import Replay
    from proofgrad.core.tensor.runtime.result_pool import Spare


def run_same_call(replay: Replay, arguments: Sequence[Tensor]) -> list[Tensor] | None:
    """The results. None, and nothing is done, where something is not as it was. For one thread at a time, of a replay with
    `only_launch`.
    """
    results = _free_results(replay, arguments)
    if results is None:
        return None
    if replay.value_check is not None:
        _check(replay, arguments, results)
    replay.only_launch()  # type: ignore[misc]
    counters = GlobalCounters
    counters.kernel_count += replay.kernel_count
    counters.global_ops += replay.flops
    counters.global_mem += replay.nbytes
    device = replay.device
    return [Tensor._new(spare.node, device) for spare in results]


def _free_results(replay: Replay, arguments: Sequence[Tensor]) -> list[Spare] | None:
    """Results that nobody holds, to which the program writes now, if all that it reads is where it was."""
    if len(arguments) != len(replay.nodes):
        return None
    for one, last, node in zip(arguments, replay.objects, replay.nodes):
        if one is not last() or one._uop is not node():
            return None
    for read in replay.reads:
        if not read.is_as_before(arguments) or replay.memory[read.slot] is None:
            return None
    found = []
    for made in replay.made:
        for spare in made.spares:  # as `free_spare`, with two calls less
            if owners_of_result(spare) == spare.alone:
                break
        else:
            return None
        if spare is not made.pointed:
            made.pointed = None  # until the program has been told
            replay.program.changed(made.slot, spare.handle)
            made.pointed = spare
        found.append(spare)
    return found


def _check(replay: Replay, arguments: Sequence[Tensor], results: Sequence[Spare]) -> None:
    """The table of the program beside the Tensors that there are now. Raises: CheckError."""
    assert replay.value_check is not None
    for made, spare in zip(replay.made, results):
        made.again, replay.memory[made.slot] = spare, spare.handle
    replay.check(replay.value_check, arguments)
    for made in replay.made:
        replay.memory[made.slot] = None
