"""A warning for who trains and did not say so: dropout and batch norm look at `Tensor.training`.

Owns: what layers with two modes have done since the last step of an optimizer.
"""

from __future__ import annotations

from dataclasses import dataclass

from proofgrad.core.messages import warn


@dataclass(slots=True)
class _Seen:
    """The layer that ran as in evaluation since the last step; whether the warning was given."""

    layer: str = ""
    has_warned: bool = False


_SEEN = _Seen()


def note_mode(layer: str, training: bool) -> None:
    """A layer with two modes runs, in that of `Tensor.training`, which forgets others if it is on."""
    _SEEN.layer = "" if training else layer


def check_mode(optimizer: str, training: bool) -> None:
    """An optimizer takes a step. Warns once in a process, if a layer ran as in evaluation and training is off still."""
    layer, _SEEN.layer = _SEEN.layer, ""
    if layer and not training and not _SEEN.has_warned:
        _SEEN.has_warned = True
        warn(
            f"{optimizer} takes a step, and {layer} ran as in evaluation, for Tensor.training is off: train within"
            " `with Tensor.train():`, or set Tensor.training = True"
        )
