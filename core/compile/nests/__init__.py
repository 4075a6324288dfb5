"""Kernels as nests of loops: what can be read from one, and how it shall run, as a value.

Owns: loops and their sizes, strides of indices, sums of products, `Schedule`. Does not own: changing a nest (steps/),
choosing a schedule (schedule/).
"""
