"""The steps: the only ways to change a kernel, or the program that it is of, each a law that is proved once.

Owns: the laws and their side conditions, decided at each use by facts and linear forms; `LoopNest` (loop_nest.py) and `TensorProgram`
(tensor_program.py), which only steps make. Does not own: which step is taken (tactics/): a tactic can make a program slow, never wrong.
"""
