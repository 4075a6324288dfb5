"""Why the steps are right: their laws as goals of the solver, proved once for all kernels."""
