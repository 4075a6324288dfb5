"""Whether layers train: a mode of the process, and another one within `Tensor.train()` for the thread that is there.

Owns: the mode, and how it is an attribute of classes. Does not own: the layers that look at it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextvars import ContextVar

from proofgrad.core import settings
from proofgrad.core.within import block

# None: this thread, or asynchronous task, is within no `train()`.
_WITHIN: ContextVar[bool | None] = ContextVar("training", default=None)


class ShowsTraining(type):
    """The type of classes of Tensors, so that `Tensor.training` may be read and set."""

    _of_process = settings.number("TRAINING") > 0
    looks = 0  # how often anybody asked, so that one can say whether a function did

    @property
    def training(cls) -> bool:
        """The mode of the innermost `train()` around here, else that of the process."""
        ShowsTraining.looks += 1
        within = _WITHIN.get()
        return ShowsTraining._of_process if within is None else within

    @training.setter
    def training(cls, mode: bool) -> None:
        """Until the end of the `train()` around here; if there is none, of the process."""
        if _WITHIN.get() is None:
            ShowsTraining._of_process = bool(mode)
        else:
            _WITHIN.set(bool(mode))

    @training.deleter
    def training(cls) -> None:
        """As at the start."""
        cls.training = settings.number("TRAINING") > 0


@block
def training_within(mode: bool) -> Iterator[None]:
    """Within, in this thread: this mode, whatever other threads enter, leave or set meanwhile."""
    before = _WITHIN.get()
    _WITHIN.set(bool(mode))
    try:
        yield
    finally:
        _WITHIN.set(before)
