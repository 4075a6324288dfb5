"""Graphs as loop nests in text: printed (show.py), read back as the same object (reader.py), compared (changes.py).

Owns: the form. Does not own: the text of a graph as a Python expression (core/ir/text.py).
"""
