"""The frames of a stack: which are bad, how they move, and curves over them."""
