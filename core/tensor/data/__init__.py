"""What Tensors hold and are given.

Owns: the errors of bad input, types of results, shapes and axes as methods are given them, nodes that many methods make,
bodies of functions, Python numbers as bytes, memory of other libraries. Does not own: Tensors.
"""
