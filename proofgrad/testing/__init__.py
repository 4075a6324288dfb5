"""Tools for tests of programs that use proofgrad.

Owns: the names under `proofgrad.testing`. `python -m proofgrad.testing.backend NAME` checks a machine.
"""

from __future__ import annotations

from proofgrad.testing.closeness import assert_close, ulp_distance
from proofgrad.testing.gradients import GradientError, gradcheck

__all__ = ["GradientError", "assert_close", "gradcheck", "ulp_distance"]
