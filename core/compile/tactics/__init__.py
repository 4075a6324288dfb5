"""Passes over one kernel that only call steps, so that they can be slow but not wrong.

Owns: which steps are taken for what its schedule says. Does not own: the steps and their laws (steps/), the choice (schedule/).
"""
