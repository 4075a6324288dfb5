"""Python's search for cycles made rare while a plan is made.

Owns: how rare. Compiling makes many objects at a time, none of them in cycles: they go when nobody holds
them. Left alone, Python looks through those that live on again and again, a tenth of a first call.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

# So many more objects than before start a search; Python's own number is 700.
OBJECTS = 200_000


@contextmanager
def rare_collection() -> Iterator[None]:
    """Inside, cycles are looked for once in many objects. What the user has set comes back."""
    usual = gc.get_threshold()
    if not 0 < usual[0] < OBJECTS:  # never, or another thread is inside and gives it back
        yield
        return
    gc.set_threshold(OBJECTS, *usual[1:])
    try:
        yield
    finally:
        gc.set_threshold(*usual)
