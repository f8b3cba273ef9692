"""Many acquisitions, each in its own process: the plan, the pool, resuming, and the table of outcomes."""

from usdenoise.batch.plan import Scan
from usdenoise.batch.resume import Action, Decision
from usdenoise.batch.run_batch import BatchReport, Watcher, plan_batch, run_batch
from usdenoise.batch.table import Failure, Row, Status

__all__ = [
    "Action",
    "BatchReport",
    "Decision",
    "Failure",
    "Row",
    "Scan",
    "Status",
    "Watcher",
    "plan_batch",
    "run_batch",
]
