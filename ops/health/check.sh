#!/bin/sh
# Is every shard well, and if not, which one is not? The line on stderr is the health document,
# which names each shard's state and the cause of a death.
#   check.sh [URL [TIMEOUT_S]]       exit codes: probe.sh
# Where the Python package is installed, `python -m sessions check URL` says it in a sentence.
exec "${0%/*}/probe.sh" /healthz "$@"
