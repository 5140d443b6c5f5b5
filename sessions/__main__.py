"""`python -m sessions`: the command line.

Spec: docs/operations.md#command-line
"""

from __future__ import annotations

import sys

from sessions.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
