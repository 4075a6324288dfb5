"""The only folder that knows a solver: proofs of rules and steps, and checks of kernels.

Owns: the command line of `verify-rules` (cli.py). Each other part is a folder with an owner of its own.
"""
