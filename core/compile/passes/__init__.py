"""The compiler as a list of passes over seven forms.

Owns: stages and how they run, what a pass is given, which graphs each form allows, what a pass changed, as text. Does not own: the passes
(tactics/, lowering/, math/, fusion/), the list of them (rules/pipeline.py).
"""
