"""Reductions: `Reduction`, which says what it takes of an axis; scans are functions beside it. It builds on
`Movement` and `Elementwise`.

Owns: what combines the elements of an axis. Does not own: sums of products (linalg/).
"""
