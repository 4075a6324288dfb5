"""What Tensors hold, before there is any graph.

Owns: the errors of bad input, types of results, Python numbers as bytes, memory of other libraries. Does not own: Tensors.
"""
