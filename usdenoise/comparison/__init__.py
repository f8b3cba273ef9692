"""The same acquisition through several methods, each in a process of its own, measured on one scale."""

from usdenoise.comparison.comparing import Comparison as Comparison
from usdenoise.comparison.comparing import Settings as Settings
from usdenoise.comparison.comparing import compare as compare
from usdenoise.comparison.methods import CONTENDERS as CONTENDERS
