"""Run a job: an acquisition file in, a folder of results out."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from usdenoise.errors import OptionError, check_path
from usdenoise.formats.bids import bids_name, describe_derivative
from usdenoise.jobs.image_job import ImageJob
from usdenoise.jobs.job_frame import Job, JobKind, carry_out
from usdenoise.jobs.progress import Silence, Watcher
from usdenoise.jobs.sequence_job import SequenceJob
from usdenoise.options.denoise_options import DenoiseOptions
from usdenoise.options.job_options import Display, Output
from usdenoise.system.helper_process import HERE, Caller


def run(
    path: str | Path,
    folder: str | Path | None = None,
    *,
    options: DenoiseOptions | None = None,
    display: Display | None = None,
    output: Output | None = None,
    reading: Mapping[str, Any] | None = None,
    bids: str | None = None,
    memory: int | None = None,
    dask: str | None = None,
    drawer: Caller = HERE,
    overwrite: bool = False,
    command: list[str] | None = None,
    watcher: Watcher | None = None,
) -> dict[str, Any]:
    """Denoise one acquisition file and write the results.

    Parameters
    ----------
    path : str or Path
        The acquisition.
    folder : str or Path, optional
        Folder of the results; by default ``<stem>-usdenoise`` in the current folder.
    options : DenoiseOptions, optional
        Options of the denoiser.
    display : Display, optional
        Options of the pictures.
    output : Output, optional
        What is written next to, or instead of, the filtered stack. With ``output.window`` the result is a sequence
        of images. Its report describes the window with the largest error for its size, with the totals of
        iterations, passes and entries, and all windows under "sequence".
    reading : mapping, optional
        Fields of :class:`usdenoise.options.ReadOptions`.
    bids : str, optional
        Entities of BIDS, such as "sub-01_task-rest", with which the names of the results begin; "auto" takes them from
        the name of the acquisition. The results go to sub-01/fus below `folder`, which becomes a derivative data set.
        Needs ``output.nifti``.
    memory : int, optional
        Bytes of memory that the job may take. If the stack does not fit, it goes into a file without a name in the
        folder of the results, which the system maps into memory page by page. By default what the system has to give.
    dask : str, optional
        Dask workers that read and filter the stack chunk by chunk: a number of worker processes to start, or the address
        of a scheduler whose workers see the same files. By default everything is done here. A script must call this
        function under ``if __name__ == "__main__":`` then, because it starts processes.
    drawer : Caller
        Process that draws the figures of one image; by default this one. A
        :class:`usdenoise.system.helper_process.HelperProcess` draws while this process goes on.
    overwrite : bool
        Whether existing results may be replaced; by default False.
    command : list of str, optional
        The command line, for the record.
    watcher : Watcher, optional
        Its methods are called as the job proceeds; by default nothing is called.

    Returns
    -------
    dict
        The report, as written to ``<stem>_report.json``.

    Raises
    ------
    UsdenoiseError
        For anything that the user can mend.

    Examples
    --------
    >>> import tempfile, usdenoise
    >>> output = usdenoise.Output(products=("power", "velocity"))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     report = usdenoise.run("sample_data/phantom.h5", folder, output=output)
    >>> report["input"]["axes"], report["low_cutoff"] > 0
    ('tzx', True)
    """
    check_path(path)
    path = Path(path)
    output = output or Output()
    root = Path(f"{path.stem}-usdenoise") if folder is None else Path(folder)
    name = None if bids is None else bids_name(bids, path)
    if name is not None and not output.nifti:
        raise OptionError("the names of BIDS are for NIfTI files: give --nifti and --window with --bids")
    job = Job(
        path,
        root if name is None else root / name.folder,
        options or DenoiseOptions(),
        display or Display(),
        output,
        reading or {},
        command,
        name,
        memory,
        dask,
        drawer,
    )
    window = job.output.window
    if dask is not None and window is not None:
        raise OptionError("windows are filtered here, one after the other; leave out --window or --dask")
    kind: JobKind = ImageJob(job) if window is None else SequenceJob(job, window)
    report = carry_out(job, kind, overwrite, watcher or Silence())
    if name is not None:
        describe_derivative(root, str(report["software"]["usdenoise"]))
    return report
