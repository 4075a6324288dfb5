"""Rewrite rules, as data, and the list of stages that use them.

Owns: `*.rules`, which of them make the library (library.py), the order of stages (pipeline.py). Does not own: their proofs (proofs/), the language (verify/dsl).
"""
