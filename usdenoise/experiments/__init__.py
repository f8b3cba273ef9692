"""The experiments of Zhang, Chiu and Zhang (AISTATS 2024), on the loop and the methods that `run` uses."""
