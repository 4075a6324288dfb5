"""From rules to obligations: the meaning of every operation and of every kind of rule, in SMT.

Owns: semantics and goals. Does not own: deciding them (prove/). Each file of this folder is part of what a proof depends on.
"""
