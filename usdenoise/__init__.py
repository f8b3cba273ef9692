"""Low-rank clutter filtering and denoising of ultrafast Doppler stacks.

The public names are loaded on first use, so that importing the package costs nothing. `import usdenoise.xarray` gives
DataArrays the accessor `usdenoise`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from usdenoise.blood import metrics as metrics
    from usdenoise.blood.doppler import axial_velocity as axial_velocity
    from usdenoise.blood.doppler import directional_power as directional_power
    from usdenoise.blood.doppler import power_doppler as power_doppler
    from usdenoise.blood.doppler import signed_power as signed_power
    from usdenoise.completion.descent_methods import METHODS as METHODS
    from usdenoise.errors import UsdenoiseError as UsdenoiseError
    from usdenoise.files import load as load
    from usdenoise.jobs.batch import run_batch as run_batch
    from usdenoise.jobs.compare import compare as compare
    from usdenoise.jobs.products import save as save
    from usdenoise.jobs.run_job import run as run
    from usdenoise.jobs.session_call import PosesResult as PosesResult
    from usdenoise.jobs.session_call import Session as Session
    from usdenoise.jobs.session_call import SessionResult as SessionResult
    from usdenoise.jobs.session_call import model as model
    from usdenoise.jobs.session_call import session as session
    from usdenoise.options.denoise_options import DenoiseOptions as DenoiseOptions
    from usdenoise.options.job_options import Display as Display
    from usdenoise.options.job_options import Output as Output
    from usdenoise.pipeline.denoise import denoise as denoise
    from usdenoise.pipeline.result import DenoiseResult as DenoiseResult
    from usdenoise.pipeline.result import Doubt as Doubt
    from usdenoise.report.pictures import plot as plot
    from usdenoise.sessions.live_state import SessionUpdate as SessionUpdate
    from usdenoise.stack.acquisition import Acquisition as Acquisition

_HOMES = {
    "Acquisition": "usdenoise.stack.acquisition",
    "DenoiseOptions": "usdenoise.options.denoise_options",
    "DenoiseResult": "usdenoise.pipeline.result",
    "Display": "usdenoise.options.job_options",
    "Doubt": "usdenoise.pipeline.result",
    "METHODS": "usdenoise.completion.descent_methods",
    "Output": "usdenoise.options.job_options",
    "UsdenoiseError": "usdenoise.errors",
    "axial_velocity": "usdenoise.blood.doppler",
    "signed_power": "usdenoise.blood.doppler",
    "compare": "usdenoise.jobs.compare",
    "denoise": "usdenoise.pipeline.denoise",
    "directional_power": "usdenoise.blood.doppler",
    "load": "usdenoise.files",
    "plot": "usdenoise.report.pictures",
    "power_doppler": "usdenoise.blood.doppler",
    "run": "usdenoise.jobs.run_job",
    "run_batch": "usdenoise.jobs.batch",
    "save": "usdenoise.jobs.products",
    "PosesResult": "usdenoise.jobs.session_call",
    "Session": "usdenoise.jobs.session_call",
    "SessionUpdate": "usdenoise.sessions.live_state",
    "SessionResult": "usdenoise.jobs.session_call",
    "model": "usdenoise.jobs.session_call",
    "session": "usdenoise.jobs.session_call",
}

__all__ = sorted([*_HOMES, "__version__", "metrics"])


def __getattr__(name: str) -> Any:
    if name == "metrics":
        return import_module("usdenoise.blood.metrics")
    if name in _HOMES:
        # Errors name the parameters of all option classes.
        import_module("usdenoise.options")
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'usdenoise' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
