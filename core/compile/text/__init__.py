"""Graphs as the text of loop nests, and back: for people, tests and documents.

Owns: the syntax, printing, reading. Does not own: graphs as such (core/ir/text.py prints those).
"""
