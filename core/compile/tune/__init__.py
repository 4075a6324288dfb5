"""BEAM: schedules tried and timed on the machine that the kernel runs on.

Owns: the search, what it may vary, trial runs. Does not own: what is tried first (schedule/).
"""
