"""Choosing elements and writing to them: `Indexing` joins `Selection`, `Scatter`, `Sorting`, `Hashing`
and `Assignment`.

Owns: which elements an index, a mask, an order or a write names; all read them in one form (take.py). Does not own:
views that are named otherwise (movement/).
"""

from proofgrad.core.tensor.methods.indexing.assign import Assignment
from proofgrad.core.tensor.methods.indexing.hashing import Hashing
from proofgrad.core.tensor.methods.indexing.scatter import Scatter
from proofgrad.core.tensor.methods.indexing.sorting import Sorting


class Indexing(Assignment, Scatter, Sorting, Hashing):
    """Parts of a Tensor read, written, put in order and told apart."""

    __slots__ = ()
