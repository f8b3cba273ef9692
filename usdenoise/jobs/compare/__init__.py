"""The same acquisition through several clutter filters, one after the other, with metrics that compare them.

The filters are the rows of `clutter_filters`. From outside import the names below, and `compare_file` for files.
"""

from usdenoise.jobs.compare.clutter_filters import CLUTTER_FILTERS as CLUTTER_FILTERS
from usdenoise.jobs.compare.compare_methods import Comparison as Comparison
from usdenoise.jobs.compare.compare_methods import compare as compare
