"""The experiments of Zhang, Chiu and Zhang (AISTATS 2024), with the loop and the methods of `run`.

An experiment is declared in `planted_experiments` or `ultrasound`, and listed in `run_experiments`. From outside
import `run_experiments.EXPERIMENTS`, `run_experiments.reproduce` and `setup.Setup`.
"""
