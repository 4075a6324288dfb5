"""From the body of a kernel to loops, and from loops to a list of instructions.

Owns: the procedures that no proven step covers (lower, promote, linearize), names of kernels, what printers ask of a program.
Does not own: loops between the two (steps/, tactics/).
"""
