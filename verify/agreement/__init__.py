"""Proof and execution agree: the engine rewrites instances of a rule, the reference evaluates both sides.

Owns: a second way to admission beside the solver, which shares no code with the encoder. A rule that fires on no instance is not
admitted, nor one of which some instance changes its value. Does not own: proofs (verify/prove).
"""
