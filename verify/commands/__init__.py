"""What verify-rules does, command by command, and the pages that it writes.

Owns: output, exit codes, reports. Does not own: reading the command line (cli.py).
"""
