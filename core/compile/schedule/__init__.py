"""How one kernel shall run: every heuristic, and the cost model behind them.

Owns: the choice of tiles, tables, vectors, copies, reduction blocks and threads. Does not own: doing it (tactics/), trying other
choices (tune/), what was chosen as a value (nests/kernel_schedule.py).
"""
