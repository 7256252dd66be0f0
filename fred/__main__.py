"""`python -m fred`."""

import sys

from fred.cli import main

sys.exit(main())
