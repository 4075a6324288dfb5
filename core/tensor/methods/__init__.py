"""The methods of Tensor, by subject: `Tensor` lists the classes, docs/architecture.md says which builds on which.

Owns: what each method means as a graph of operations. Does not own: running (runtime/), derivatives (autograd.py).
"""
