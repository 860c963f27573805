"""`python -m minigen.cli` does what `minigen` does."""

import sys

from .app import main

sys.exit(main())
