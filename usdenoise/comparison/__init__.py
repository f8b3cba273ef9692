"""The same acquisition through several clutter filters, each alone in its own process, with figures that compare them.

The filters are the rows of `clutter_filters`. From outside import the names below, and `compare_file` for files.
"""

from usdenoise.comparison.clutter_filters import CONTENDERS as CONTENDERS
from usdenoise.comparison.compare_methods import Comparison as Comparison
from usdenoise.comparison.compare_methods import compare as compare
from usdenoise.comparison.work import Settings as Settings
