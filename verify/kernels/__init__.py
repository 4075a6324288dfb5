"""PROVE=1: a compiled kernel shown to compute what its tensor graph says, access by access.

Owns: reading kernels back, matching loops, claims about indices. Does not own: sampled values (sampled/), laws of steps (steps/).
"""
