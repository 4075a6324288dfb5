"""The checks of `python -m proofgrad.testing.backend`: small programs, and what each must give.

check.py: what a check yields, and how it is run.  differences.py: two arrays compared.  edges.py: values at the edges of
each type.  elements.py, programs.py, machine.py: the checks themselves.
"""
