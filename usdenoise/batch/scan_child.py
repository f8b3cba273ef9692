"""The process of one scan on a Dask worker: ``python -m usdenoise.batch.scan_child DESCRIPTOR``."""

import os
import signal
import sys
import threading
import time
from multiprocessing.connection import Connection

from usdenoise.batch.scan_process import GRACE_S, work

_LOOK_S = 0.5


def main(descriptor: int) -> None:
    """Receive a scan through a pipe, and do its job.

    Parameters
    ----------
    descriptor : int
        The end of the pipe to the worker, over which :func:`usdenoise.batch.scan_process.work` goes on to report.
    """
    threading.Thread(target=_follow, args=(os.getppid(),), daemon=True).start()
    pipe = Connection(descriptor)
    work(pipe, *pipe.recv())


def _follow(parent: int) -> None:
    """End this process when its worker has ended, with time to remove its temporary files."""
    while os.getppid() == parent:
        time.sleep(_LOOK_S)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE_S)
    os._exit(1)


if __name__ == "__main__":
    main(int(sys.argv[1]))
