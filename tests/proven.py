"""What `PROVE=1` says of kernels, as tests ask for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from proofgrad import Context


@contextmanager
def fully_proved(capfd: pytest.CaptureFixture[str], *also: str) -> Iterator[None]:
    """Inside, the solver shows all of each kernel that is compiled; `also` is said of them."""
    capfd.readouterr()
    with Context(PROVE=1, PLANS=0):
        yield
    told = capfd.readouterr().err
    assert "none unknown" in told and "NOT COVERED" not in told, told
    assert all([text in told for text in also]), told
