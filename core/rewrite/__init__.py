"""Rules as data, and the engine that runs the ones that are proven.

Owns: matching, conditions, facts, searches and their contracts, sums of index terms, the gate that asks for evidence. Does not own: the
rules (rules/), proofs (verify/).
"""
