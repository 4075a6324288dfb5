"""Matrices: `LinearAlgebra`, products (products.py), factors, Fourier transforms; it builds on `Indexing`.

Owns: how products of matrices are made of one multiplication and one sum. Does not own: convolutions (nn/windows.py).
"""
