#!/bin/sh
# Runs the server on the simulated engine and says how to talk to it once it serves.
# Settings may be given as SESSIONS_*; started by `make run`.
set -eu
SESSIONS_ENGINE_URL="${SESSIONS_ENGINE_URL:-sim:}"
SESSIONS_RUNTIME_DIR="${SESSIONS_RUNTIME_DIR:-$(mktemp -d "${TMPDIR:-/tmp}/sessile.XXXXXX")}"
export SESSIONS_ENGINE_URL SESSIONS_RUNTIME_DIR

greet() {
    until [ -f "$SESSIONS_RUNTIME_DIR/ready.json" ]; do
        kill -0 "$1" 2>/dev/null || exit 0
        sleep 0.1
    done
    address=$(sed -n 's/.*"address": "\([^"]*\)".*/\1/p' "$SESSIONS_RUNTIME_DIR/ready.json")
    cat <<TEXT

Sessile serves at http://$address  (${SESSIONS_SHARDS:-1} shards, engine $SESSIONS_ENGINE_URL; Ctrl-C stops it)

  curl -s http://$address/healthz
  curl -s -X POST http://$address/sessions
  .venv/bin/python examples/rollout.py http://$address

TEXT
}

greet $$ &
exec gunicorn -c gunicorn_conf.py
