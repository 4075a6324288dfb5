"""CHECK=1: graphs, kernels and plans at sampled elements, beside what they were made from.

Owns: operations on arrays of values, what the design leaves free, stages, launches, memory. Does not own: proofs for all values (kernels/).
"""
