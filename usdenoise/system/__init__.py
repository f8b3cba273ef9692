"""What the operating system and the interpreter are asked: signals, threads, memory, provenance."""
