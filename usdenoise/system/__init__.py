"""Interfaces to the operating system and the interpreter: signals, locks, threads, memory, provenance.

Every file may be imported from outside.
"""
