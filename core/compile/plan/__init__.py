"""Launches and buffers: what a compiled graph is.

Owns: plans, their store on disk, memory written over, compiling in the background, checks of plans. Does not own: running them
(core/tensor/runtime).
"""
