"""The simulator behind ``usdenoise simulate``: tissue, blood and noise with known truth.

Everything is closed-form in time, so any frame can be made on its own: frames come in blocks of any size,
in any order and on any thread, and are the same.
"""

from usdenoise.phantom.phantom import Phantom, Terms
from usdenoise.phantom.settings import PhantomSettings

__all__ = ["Phantom", "PhantomSettings", "Terms"]
