"""Why the steps are right: their laws as goals of the solver, proved once for all kernels.

Owns: the claims of each step and their proofs. Does not own: the steps (core/compile/steps).
"""
