"""Low-rank clutter filtering and denoising of ultrafast Doppler stacks.

The public names are loaded on first use, so that importing the package costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from usdenoise.acquisition import Acquisition as Acquisition
    from usdenoise.batch import run_batch as run_batch
    from usdenoise.comparison import compare as compare
    from usdenoise.completion.methods import METHODS as METHODS
    from usdenoise.denoising import DenoiseResult as DenoiseResult
    from usdenoise.denoising import denoise as denoise
    from usdenoise.doppler import axial_velocity as axial_velocity
    from usdenoise.doppler import directional_power as directional_power
    from usdenoise.doppler import power_doppler as power_doppler
    from usdenoise.errors import UsdenoiseError as UsdenoiseError
    from usdenoise.expansion import expand as expand
    from usdenoise.formats import load as load
    from usdenoise.options import DenoiseOptions as DenoiseOptions

_HOMES = {
    "Acquisition": "usdenoise.acquisition",
    "DenoiseOptions": "usdenoise.options",
    "DenoiseResult": "usdenoise.denoising",
    "METHODS": "usdenoise.completion.methods",
    "UsdenoiseError": "usdenoise.errors",
    "axial_velocity": "usdenoise.doppler",
    "compare": "usdenoise.comparison",
    "denoise": "usdenoise.denoising",
    "directional_power": "usdenoise.doppler",
    "expand": "usdenoise.expansion",
    "load": "usdenoise.formats",
    "power_doppler": "usdenoise.doppler",
    "run_batch": "usdenoise.batch",
}

__all__ = sorted([*_HOMES, "__version__"])


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'usdenoise' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
