"""The methods of Tensor, by subject.

Owns: what each method means as a graph of operations. Does not own: running (runtime/), derivatives (autograd.py).
"""
