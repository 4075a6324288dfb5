"""What people are told of a rule: counterexamples, the condition that is missing, the steps that rewrite a term.

Owns: texts and programs that show a verdict. Does not own: verdicts (prove/).
"""
