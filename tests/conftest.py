"""Settings of the whole test-suite."""

from __future__ import annotations

import os

from hypothesis import settings

# In CI the same examples every time; elsewhere new ones, and a failing one is printed as a graph.
settings.register_profile("ci", derandomize=True)
if os.environ.get("CI"):
    settings.load_profile("ci")
