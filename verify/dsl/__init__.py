"""The language of rule files: text to `Rule` objects and back.

Owns: the parser, types, examples, termination, layout. Does not own: what a rule means (verify/encode). Only verify-rules imports it.
"""
