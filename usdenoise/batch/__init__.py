"""Many acquisitions, one process each: what to do, doing it, and the table of what came of it."""

from usdenoise.batch.loop import BatchReport, Watcher, plan_batch, run_batch
from usdenoise.batch.plan import Scan
from usdenoise.batch.resume import Decision
from usdenoise.batch.rows import Row

__all__ = ["BatchReport", "Decision", "Row", "Scan", "Watcher", "plan_batch", "run_batch"]
