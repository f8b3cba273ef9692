"""Many acquisitions: which scans and where, resuming, processes here or on Dask workers, the table and the page.

The names below may be imported from outside. `run_batch` is the entry point.
"""

from usdenoise.jobs.batch.plan import Scan
from usdenoise.jobs.batch.resume import Decision
from usdenoise.jobs.batch.run_batch import BatchReport, Watcher, plan_batch, run_batch
from usdenoise.report.batch_row import Row, Status

__all__ = [
    "BatchReport",
    "Decision",
    "Row",
    "Scan",
    "Status",
    "Watcher",
    "plan_batch",
    "run_batch",
]
