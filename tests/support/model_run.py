"""How long models are run: `MODEL_EXAMPLES` scripts, or as many as the suite has time for.

Spec: docs/lending.md#guards
"""

from __future__ import annotations

import os
from typing import Final

SUITE_EXAMPLES: Final = 100
EXAMPLES: Final = int(os.environ.get("MODEL_EXAMPLES", str(SUITE_EXAMPLES)))
IS_FULL: Final = EXAMPLES > SUITE_EXAMPLES
