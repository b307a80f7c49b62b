"""``python -m fuzz``."""

from fuzz.driver import run

run()
