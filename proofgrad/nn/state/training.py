"""A training run in one file: models, optimizers, schedules, and where the random numbers are.

Owns: what belongs to a run, and that it is resumed whole or not at all. Does not own: the format (safe.py), names (model.py).
"""

from __future__ import annotations

import os
from typing import Any

from proofgrad import Tensor
from proofgrad.nn.state.files import FormatError
from proofgrad.nn.state.model import get_state_dict, load_state_dict
from proofgrad.nn.state.safe import safe_load, safe_save

RANDOM = "random"  # the name under which the state of random numbers is


def save_training(fn: str | os.PathLike[str], **parts: Any) -> None:
    """Write all that a run needs to go on exactly: the Tensors of `parts`, and the state of random numbers.

    A Tensor that several parts have, as model and optimizer do, is written once. The file is a .safetensors; it is whole or
    what it was before. Raises: ValueError for a part of the name "random".

    Example:
        from proofgrad import nn

        model = nn.Linear(3, 2)
        optimizer = nn.optim.Adam(nn.state.get_parameters(model))
        nn.state.save_training("run.safetensors", model=model, optimizer=optimizer)
        nn.state.resume_training("run.safetensors", model=model, optimizer=optimizer)
    """
    safe_save({**_once(parts), RANDOM: Tensor.get_rng_state()}, fn)


def resume_training(fn: str | os.PathLike[str], **parts: Any) -> None:
    """Give `parts`, made as those that were saved, the values of the file, and go on with its random numbers.

    Raises: FormatError for a file of another kind; KeyError and ShapeError, with the name, for one of other parts. Then
    nothing has changed.
    """
    state = safe_load(fn)
    random = state.pop(RANDOM, None)
    if random is None:
        raise FormatError(
            f"{os.fspath(fn)} has no state of random numbers: save_training did not write it"
        )
    own = _once(parts)
    extra = sorted(set(state) - set(own))
    if extra:
        raise KeyError(f"{os.fspath(fn)} has {', '.join(extra[:3])}, which these parts have not")
    load_state_dict(own, state)
    Tensor.set_rng_state(random)


def _once(parts: dict[str, Any]) -> dict[str, Tensor]:
    """Each Tensor by the first of its names."""
    if RANDOM in parts:
        raise ValueError(f"no part may be called {RANDOM!r}, for the random numbers are")
    found = get_state_dict(parts)
    first: dict[int, str] = {}
    for name, tensor in found.items():
        first.setdefault(id(tensor), name)
    return {name: found[name] for name in first.values()}
