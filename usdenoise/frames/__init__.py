"""The frames of a stack: which are bad, how they move, how blocks are aligned, and curves over them."""
