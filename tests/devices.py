"""Machines by name, for tests that run on several."""

from __future__ import annotations

import pytest

from proofgrad import Device
from proofgrad.core.compile.machine.target import DeviceError


def opened(name: str) -> str:
    """The name of a machine that can be opened here; elsewhere the test is skipped, with the reason."""
    try:
        Device[name]
    except DeviceError as error:
        pytest.skip(f"no {name} here: {error}")
    return name
