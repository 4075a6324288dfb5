"""From a graph of tensor nodes to kernels: fusion, schedules, tactics over proven steps, lowering.

Owns: the driver (compiler.py) and its caches, launches (planning.py), what DEBUG shows (shown.py). Each part is a folder with an owner of its own.
"""
