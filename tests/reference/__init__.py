"""Slow textbook forms of what the package computes fast."""
