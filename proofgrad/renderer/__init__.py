"""Languages that kernels are printed in, under the names of tutorials."""
