"""Files: readers and writers, one module for each format, and the choice between them.

`open_input.open_input` opens an acquisition once for everything that reads it; `load` and `describe` are its short forms.
`results` writes a result, `output_folder` makes files appear all at once; other packages leave single formats alone.
"""

from usdenoise.files.recordings import describe, load

__all__ = ["describe", "load"]
