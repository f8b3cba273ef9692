"""What the operating system and the interpreter are asked: signals, processes, threads, memory, provenance.

Every file may be imported from outside, but server_process, which only the server of processes imports.
"""
