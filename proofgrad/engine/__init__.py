"""Parts of the engine under the names of programs for tinygrad; ours are in core/."""
