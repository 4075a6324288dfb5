"""TinyJit: a function of Tensors recorded once and replayed without its Python.

Owns: recording, what a recording may assume, replay. Does not own: plans (core/compile/plan), launches (runtime/).
"""
