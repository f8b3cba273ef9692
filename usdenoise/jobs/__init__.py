"""Jobs: a file in, a folder of results out.

`run_job.py` is the job of `run` and `session`; `batch` and `compare` have their own. The calls are imported outside: `run`,
`session`, `Session`, `batch`, `compare`, `simulate` and `save`.
"""
