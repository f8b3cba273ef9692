"""The experiments of Zhang, Chiu and Zhang (AISTATS 2024), with the loop and the methods of `run`.

An experiment is declared in `sensing`, `exact_and_over` or `ultrasound`, and listed in `catalogue`. From outside import
`catalogue.EXPERIMENTS`, `run_experiments.reproduce` and `setup.Setup`.
"""
