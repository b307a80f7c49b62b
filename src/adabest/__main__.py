"""``python -m adabest``."""

import sys

from adabest.cli import main

sys.exit(main())
