"""Machines under the names of tutorials; ours are in backends/."""
