"""``python -m usdenoise``."""

from usdenoise.cli import main

main()
