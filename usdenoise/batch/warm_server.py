"""What the server of a pool does once, so that no scan has to: it draws a first picture, and compiles the page.

Only such a server imports this module, which does both. Its processes inherit the fonts and the template.
"""

import numpy as np

from usdenoise.pages.page_templates import SCAN_PAGE, template
from usdenoise.pictures.doppler_pictures import power_doppler_png

template(SCAN_PAGE)
power_doppler_png(np.zeros((2, 2)), "zx", title="power")
