"""The steps: the only ways to change a kernel, or the program that it is of, each a law that is proved once.

A `LoopNest` is made by steps alone (`loop_nest.py`); so is a `TensorProgram` (`tensor_program.py`). A step states its law, decides its side conditions by facts and
linear forms at each use, and refuses where it cannot. Which step is taken is the business of tactics, which can
make a program slow and never wrong.
"""
