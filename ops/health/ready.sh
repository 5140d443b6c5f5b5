#!/bin/sh
# Does the group serve? Send it traffic only then: not while it starts, drains or goes down.
#   ready.sh [URL [TIMEOUT_S]]       exit codes: probe.sh
exec "${0%/*}/probe.sh" /readyz "$@"
