"""Many acquisitions, one process each: what to do, doing it, and the table of what came of it."""

from usdenoise.batch.plan import Scan
from usdenoise.batch.resume import Decision
from usdenoise.batch.run_batch import BatchReport, Watcher, plan_batch, run_batch
from usdenoise.batch.table import Row

__all__ = ["BatchReport", "Decision", "Row", "Scan", "Watcher", "plan_batch", "run_batch"]
