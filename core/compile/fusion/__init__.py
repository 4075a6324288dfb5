"""From a program to kernels: which values get a buffer.

Owns: the cut into kernels, limits on fusion, reductions inside of rows, long reductions in two parts. Does not own: what happens to
one kernel (schedule/, tactics/).
"""
