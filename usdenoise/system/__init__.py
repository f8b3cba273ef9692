"""What the operating system and the interpreter are asked: signals, locks, threads, memory, provenance.

Every file may be imported from outside.
"""
