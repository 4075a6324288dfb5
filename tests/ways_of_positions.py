"""The two ways to combine sources by position, for tests: only the sizes choose between them.

Owns: forcing one way for all kernels.
"""

from __future__ import annotations

import pytest

from proofgrad.core.compile.schedule import scatters as by_position
from proofgrad.core.tensor.methods.indexing import bounds
from proofgrad.core.tensor.runtime.realize import compiler


def set_way(monkeypatch: pytest.MonkeyPatch, goes: bool) -> None:
    """Let each source go to its position, or each position look at all sources, whatever pays."""
    monkeypatch.setattr(by_position, "WORTH_STEPS", 0 if goes else 1 << 60)
    monkeypatch.setattr(by_position, "WORTH_GAIN", 0)
    monkeypatch.setattr(by_position, "WORTH_RESULTS_OF_ITEMS", 0)
    monkeypatch.setattr(
        bounds, "MOST", 0
    )  # positions out of range, which go nowhere, are not refused
    monkeypatch.setenv("PLANS", "0")
    compiler().forget()  # what was compiled in the other way
