"""`Context`: settings for the length of a block."""

from __future__ import annotations

import os

import pytest

from proofgrad import Context, Device
from proofgrad.core import settings


def test_context_sets_within_and_restores_after() -> None:
    before = os.environ.get("DEBUG")
    with Context(DEBUG=2):
        assert settings.debug_level() == 2
        with Context(DEBUG=0):
            assert settings.debug_level() == 0
        assert settings.debug_level() == 2
    assert os.environ.get("DEBUG") == before


def test_context_restores_after_an_error() -> None:
    with pytest.raises(ZeroDivisionError), Context(DEBUG=5):
        raise ZeroDivisionError
    assert settings.debug_level() != 5


def test_context_chooses_the_default_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Device, "_chosen", None)
    with Context(DEV="REFERENCE"):
        assert Device.DEFAULT == "REFERENCE"
