"""Elementwise math: `Elementwise` (functions) on `Operators` on `Operands`, which build on `TensorBase` alone.

Owns: what each element of a result is, given the elements beside it. Does not own: shapes (movement/).
"""
