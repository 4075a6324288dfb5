"""Choosing elements and writing to them: `Indexing` joins `Selection`, `Scatter`, `Sorting` and `Assignment`.

Owns: which elements an index, a mask, an order or a write names; all read them in one form (take.py). Does not own:
views that are named otherwise (movement/).
"""

from proofgrad.core.tensor.methods.indexing.assign import Assignment
from proofgrad.core.tensor.methods.indexing.scatter import Scatter
from proofgrad.core.tensor.methods.indexing.sorting import Sorting


class Indexing(Assignment, Scatter, Sorting):
    """Parts of a Tensor read, written and put in order."""

    __slots__ = ()
