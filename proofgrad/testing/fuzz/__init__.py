"""Random programs of Tensors, each computed here and by numpy: `python -m proofgrad.testing.fuzz`.

Owns: programs as data (program.py), what each method means in numpy (elementwise.py, reductions.py,
movement.py, joining.py, choosing.py, products.py, windows.py, creation.py), how far a rounded value may be from its
estimate (values.py), generation (generate.py), running (run.py), comparison (compare.py), shrinking
(shrink.py), scripts (report.py). Nothing here asks the package what a method means.
"""

from __future__ import annotations
