"""Python's search for cycles made rare while a plan is made.

Owns: how rare. Compiling makes many objects at a time, none of them in cycles: they go when nobody holds
them. Left alone, Python looks through those that live on again and again, a tenth of a first call. Those of a large plan
count as old at its end, for Python would look through them twice more before it took them for that.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

# So many more objects than before start a search; Python's own number is 700.
OBJECTS = 2_000_000
# A plan of so many objects is a large one: to look through them takes milliseconds.
MANY_OBJECTS = 20_000


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
        is_large = gc.get_count()[0] > MANY_OBJECTS
        if is_large and gc.get_freeze_count() == 0:  # else the user keeps some out of all searches
            gc.freeze()
            gc.unfreeze()  # into the oldest generation
        gc.set_threshold(*usual)
