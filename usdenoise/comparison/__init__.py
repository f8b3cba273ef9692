"""The same acquisition through several methods, each alone in its own process, with figures that compare them."""

from usdenoise.comparison.compare_methods import Comparison as Comparison
from usdenoise.comparison.compare_methods import Settings as Settings
from usdenoise.comparison.compare_methods import compare as compare
from usdenoise.comparison.contenders import CONTENDERS as CONTENDERS
