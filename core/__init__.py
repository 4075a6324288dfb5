"""The compiler and `Tensor`: what names no rule and no machine, for it is given both.

Owns: settings, messages and files of a cache, which its folders share. Does not own: rules, proofs, machines, what users import.
"""
