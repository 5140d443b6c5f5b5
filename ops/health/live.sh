#!/bin/sh
# Is the process that answers alive? Restart it if not; it says nothing of shards or the engine.
#   live.sh [URL [TIMEOUT_S]]        exit codes: probe.sh
exec "${0%/*}/probe.sh" /livez "$@"
