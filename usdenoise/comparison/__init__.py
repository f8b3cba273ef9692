"""The same acquisition through several methods, each in a process of its own, measured on one scale."""

from usdenoise.comparison.compare_methods import Comparison as Comparison
from usdenoise.comparison.compare_methods import Settings as Settings
from usdenoise.comparison.compare_methods import compare as compare
from usdenoise.comparison.contenders import CONTENDERS as CONTENDERS
