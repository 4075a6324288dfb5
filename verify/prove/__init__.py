"""Deciding obligations: ways to a proof, cases, workers, ledgers.

Owns: the verdict on a rule, and writing it down. Does not own: what an obligation says (encode/). Each file of this folder is part of what a
proof depends on.
"""
