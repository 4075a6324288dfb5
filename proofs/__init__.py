"""The evidence of rules and steps, written by `verify-rules` alone; a package, so that it is installed with them."""
