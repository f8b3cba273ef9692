"""Low-rank matrix completion by preconditioned gradient descent: problems, methods and the one loop.

The loop is `solve.solve`; a method is a row of `descent_methods.METHODS`, with its preconditioner and its damping. From
outside import the modules' public names; nothing here is specific to ultrasound.
"""
