"""What is known of the machine that kernels are made for.

Owns: the numbers of a core and its memory, the contract with a backend (`Target`, `Source`, `Backend`). Does not own: where
the numbers come from (backends), what follows from them for a kernel (schedule/cost_model.py).
"""
