"""New Tensors: `Creation` (random numbers) on `Factories` (the constructor, constants, counters), and on `Indexing`
for draws that need an order.

Owns: what is made of no other Tensor. Does not own: packing of Python numbers (core/tensor/data/storage.py).
"""
