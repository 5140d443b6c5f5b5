#!/bin/sh
# Runs the server on the simulated engine and says how to talk to it once it serves.
# Settings may be given as SESSIONS_*; started by `make run`.
set -eu
SESSIONS_ENGINE_URL="${SESSIONS_ENGINE_URL:-sim:}"
made=
[ -n "${SESSIONS_RUNTIME_DIR:-}" ] || made=$(mktemp -d "${TMPDIR:-/tmp}/sessile.XXXXXX")
SESSIONS_RUNTIME_DIR="${SESSIONS_RUNTIME_DIR:-$made}"
export SESSIONS_ENGINE_URL SESSIONS_RUNTIME_DIR

greet() {
    until [ -f "$SESSIONS_RUNTIME_DIR/ready.json" ]; do
        kill -0 "$1" 2>/dev/null || { rm -rf "$made"; exit 0; }
        sleep 0.1
    done
    address=$(sed -n 's/.*"address": "\([^"]*\)".*/\1/p' "$SESSIONS_RUNTIME_DIR/ready.json")
    cat <<TEXT

Sessile serves at http://$address  (${SESSIONS_SHARDS:-1} shards, engine $SESSIONS_ENGINE_URL; Ctrl-C stops it)

  curl -s http://$address/healthz
  curl -s -X POST http://$address/sessions
  .venv/bin/python examples/rollout.py http://$address

TEXT
    [ -n "$made" ] || exit 0
    while kill -0 "$1" 2>/dev/null; do sleep 1; done
    rm -rf "$made"
}

greet $$ &
exec gunicorn -c gunicorn_conf.py
