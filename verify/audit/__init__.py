"""Tools of the maintainers: other solvers asked again, and rules with a mistake in them.

Owns: the crosscheck, the mutants, their records. Does not own: proofs that the compiler runs on (prove/).
"""
