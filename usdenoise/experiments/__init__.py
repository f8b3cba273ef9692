"""The experiments of Zhang, Chiu and Zhang (AISTATS 2024), with the loop and the methods of `run`."""
