"""Functions that machines lack, as graphs of operations that IEEE 754 rounds correctly.

Owns: exponentials, logarithms, powers, sines, remainders of floats. Does not own: which machine lacks what (`Target`).
"""
