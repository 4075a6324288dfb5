"""The graph that everything is made of: operations, types, shapes, and what each operation means.

Owns: `UOp`, the one node type; the meaning of operations in words (ops.py) and in Python (evaluate.py). Does not own: their meaning
in SMT (verify/encode), rewriting (core/rewrite).
"""
