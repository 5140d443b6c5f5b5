# Two commands do all on a fresh machine: `make run` and `make test`.
PYTHON ?= python3
BIN := .venv/bin
SHARDS ?= 2
BIND ?= 127.0.0.1:8000
PURE := tests/routing tests/wire tests/lending tests/router tests/tokens tests/replay tests/core tests/client tests/cli

.PHONY: run test test-engine quick check bench coverage lock clean

run: .venv/installed  ## the server on the simulated engine; SHARDS=4 BIND=0.0.0.0:8000 to change
	@SESSIONS_SHARDS=$(SHARDS) SESSIONS_BIND=$(BIND) PATH="$(CURDIR)/$(BIN):$$PATH" sh ops/demo.sh

test: .venv/installed  ## every test
	$(BIN)/python -m pytest

test-engine: .venv/installed  ## tests/vllm against a real vLLM on the CPU; docs/engines.md has what it needs
	sh ops/engine/test_engine.sh $(ARGS)

quick: .venv/installed  ## the floors without processes, in half a minute
	$(BIN)/python -m pytest -q $(PURE)

check: .venv/installed  ## lint, format, types, floors
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy sessions tests examples benchmarks gunicorn_conf.py
	$(BIN)/lint-imports --no-cache

coverage: .venv/installed  ## every test, with the lines and branches it reached
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest
	$(BIN)/coverage combine -q
	$(BIN)/coverage report

bench: .venv/installed  ## figures of docs/benchmark.md; needs wrk and nginx; ARGS=--quick for less
	$(BIN)/python -m benchmarks.routing $(ARGS)
	$(BIN)/python -m benchmarks.production --quick --baseline

lock: .venv/installed  ## pin what pyproject.toml allows
	$(BIN)/pip install -q uv
	$(BIN)/uv pip compile -q --all-extras --group dev --no-header --no-annotate \
		--no-emit-index-url --no-emit-find-links -o requirements-dev.txt pyproject.toml
	$(BIN)/uv pip compile -q --extra qwen --extra tools --no-header --no-annotate \
		--no-emit-index-url --no-emit-find-links -o requirements.txt pyproject.toml

.venv/installed: requirements-dev.txt pyproject.toml
	$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("Python 3.11 or newer is needed")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install -q -r requirements-dev.txt
	$(BIN)/python -m pip install -q --no-deps -e .
	touch $@

clean:
	rm -rf .venv .venv-engine .cache .coverage .coverage.* .pytest_cache .mypy_cache .ruff_cache .hypothesis
