"""Rules on concrete values: refutes most wrong rules in milliseconds.

Owns: drawing values, bounds, facts and reals. Does not own: proofs (prove/), the engine's own execution (agreement/).
"""
