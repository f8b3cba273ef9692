"""Access to the operating system and the interpreter: signals, threads, memory, provenance."""
