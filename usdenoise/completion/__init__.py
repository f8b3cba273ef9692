"""Low-rank matrix completion by preconditioned gradient descent: problems, methods and the one loop."""
