# `make demo` and `make test` do their own set-up. A machine needs only Python ≥ 3.10, git and make.
# GNU make 3.81 (macOS) must work, so this file does not use .ONESHELL.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.NOTPARALLEL:

VENV := .venv
BIN := $(VENV)/bin
# uv has a virtual environment of its own inside .venv, because `uv sync` removes from .venv what uv.lock does not list, also uv itself.
UV := $(VENV)/uv/bin/uv
STAMP := $(VENV)/.set-up

# The candidates for Python, newest first. PYTHON=/path/to/python is tried before them.
PYTHON ?=
PYTHONS := $(PYTHON) python3.13 python3.12 python3.11 python3.10 python3

PORT ?= 3000
ONCE ?=
OPTIMIZERS ?=
STEPS ?= 10000
BASE ?= HEAD
SHAPE ?=
PYTEST := $(BIN)/python -m pytest
# Two workers fit a machine of 2 cores. Run `make test JOBS=4` on a larger one.
JOBS ?= 2
# Scenarios mostly wait for processes to start, to notice a kill or to end, so twice as many share the cores.
SCENARIO_JOBS ?= $(shell expr 2 \* $(JOBS))
# Tests with servers wait for them: on 2 cores, 2 workers of the other engines used 1.5, and Dagster's daemons look every few seconds.
SERVER_JOBS ?= $(shell expr $(JOBS) + 1)
# The tests of a group run one after the other, because they share servers (`GROUPS` in compaction_pipeline_tests/stages.py; files are groups
# otherwise). By itself pytest-xdist begins with the groups of many tests, and would leave the longest ones for the end.
BY_GROUP := --dist loadfile --no-loadscope-reorder

export PORT ONCE OPTIMIZERS
export PYTHONUNBUFFERED := 1
# Where the environment forbids bytecode, each process of each stage would compile the package and the tests anew: 26 CPU-seconds to collect.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help
help: ## print these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# ---- set-up -----------------------------------------------------------------------------------------------------------

$(STAMP): uv.lock pyproject.toml setup.py
	@python=; no_venv=; \
	for candidate in $(PYTHONS); do \
	  "$$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 10))' >/dev/null 2>&1 || continue; \
	  if "$$candidate" -c 'import ensurepip, venv' >/dev/null 2>&1; then python="$$candidate"; break; fi; \
	  no_venv="$$candidate"; \
	done; \
	if [ -z "$$python" ] && [ -n "$$no_venv" ]; then \
	  echo "$$no_venv has no module 'venv': install it (Debian, Ubuntu: apt-get install python3-venv) and run make again." >&2; exit 1; \
	elif [ -z "$$python" ]; then \
	  echo "No Python ≥ 3.10 found (tried: $(strip $(PYTHONS))): install one, or name it: make PYTHON=/path/to/python3" >&2; exit 1; \
	fi; \
	set -e; \
	if ! $(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 10))' >/dev/null 2>&1; then \
	  echo "Setting up $(VENV) with $$("$$python" --version) …"; "$$python" -m venv --clear $(VENV); \
	fi; \
	if ! $(UV) --version >/dev/null 2>&1; then \
	  "$$python" -m venv --clear $(VENV)/uv; $(VENV)/uv/bin/python -m pip install --quiet --disable-pip-version-check 'uv>=0.9,<1'; \
	fi; \
	echo "Installing the locked dependencies …"; \
	UV_PYTHON_DOWNLOADS=never UV_PROJECT_ENVIRONMENT=$(VENV) $(UV) sync --frozen --quiet --compile-bytecode --python $(BIN)/python
	@touch $@

.PHONY: set-up
set-up: $(STAMP) ## make the virtual environment in .venv

# ---- demo -------------------------------------------------------------------------------------------------------------

.PHONY: demo demo-clean
demo: $(STAMP) ## watch real tables being compacted in the Dagster UI (PORT=3000; with ONCE=1 compact one backlog, compare every row, and end; with OPTIMIZERS=2 a server, on SERVER_PORT=8787, and two optimizers merge; COMPACTION_DEMO_HOME=/path is the folder in place of .demo)
	@exec $(BIN)/python -m compaction_pipeline.demo

demo-clean: ## remove .demo
	@rm -rf .demo

# ---- tests, cheapest first --------------------------------------------------------------------------------------------
# Each test runs in exactly one stage: that of its most expensive marker. A stage without a test fails, because pytest then ends with 5.

.PHONY: test check lint test-fast test-spark test-postgres test-interop test-scenario test-browser test-long
FAILED_TESTS := .pytest_cache/v/cache/lastfailed
STAGES := lint test-fast test-spark test-postgres test-interop test-scenario test-browser

test: $(STAMP) ## run every stage in this order, also after one that failed
	@failed=; \
	for stage in $(STAGES); do $(MAKE) --no-print-directory $$stage || failed="$$failed $$stage"; done; \
	if [ -n "$$failed" ]; then \
	  if [ -f $(FAILED_TESTS) ]; then echo "tests that failed when they last ran:" >&2; cat $(FAILED_TESTS) >&2; fi; \
	  echo "make test: these stages failed:$$failed" >&2; exit 1; \
	fi; \
	echo "make test: every stage passed"

check: $(STAMP) ## the loop: ruff, mypy, import-linter, subjects of commits, and the tests that mirror what changed since BASE=HEAD
	@$(BIN)/python .ci/commit_subjects $(BASE)
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --check --quiet . || { echo "ruff format would change files: run '$(BIN)/ruff format .'" >&2; exit 1; }
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo >.venv/.imports 2>&1 || { cat .venv/.imports; exit 1; }
	@tests="$$($(BIN)/python .ci/changed_tests $(BASE))"; \
	if [ -z "$$tests" ]; then echo "no Python module changed"; exit 0; fi; \
	echo "== $$tests"; \
	$(PYTEST) -q -n $(JOBS) --stage=fast $$tests || [ $$? -eq 5 ]

lint: $(STAMP) ## run ruff, mypy and import-linter, and build the pages
	@echo "== lint"
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --check --quiet . || { echo "ruff format would change files: run '$(BIN)/ruff format .'" >&2; exit 1; }
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/mkdocs build --strict --quiet

test-fast: $(STAMP) ## tests without Spark, servers or browsers
	@echo "== fast tests"
	@$(PYTEST) -q -n $(JOBS) --stage=fast

test-spark: $(STAMP) ## tests on a Spark session
	@echo "== spark tests"
	@$(PYTEST) -q --stage=spark

test-postgres: $(STAMP) ## tests on PostgreSQL
	@echo "== postgres tests"
	@$(PYTEST) -q -n $(JOBS) $(BY_GROUP) --stage=postgres

test-interop: $(STAMP) ## tests with other engines: Iceberg's Java library, Spark, Flink, DuckDB
	@echo "== interop tests"
	@$(PYTEST) -q -n $(SERVER_JOBS) $(BY_GROUP) --stage=interop

test-scenario: $(STAMP) ## tests that run end to end
	@echo "== scenario tests"
	@$(PYTEST) -q -n $(SCENARIO_JOBS) $(BY_GROUP) --stage=scenario

test-browser: $(STAMP) ## tests of the UI in headless Chromium
	@echo "== browser tests"
	@$(PYTEST) -q -n $(SERVER_JOBS) $(BY_GROUP) --stage=browser

test-long: $(STAMP) ## the model test with STEPS=10000 steps, and the tests that are too long for CI
	@echo "== model test, $(STEPS) steps"
	@$(PYTEST) -q -s --timeout 0 --steps=$(STEPS) compaction_pipeline_tests/scenarios/test_model.py
	@echo "== long tests"
	@$(PYTEST) -q -s --timeout 0 --steps=$(STEPS) --stage=long || [ $$? -eq 5 ]

# ---- the rest ---------------------------------------------------------------------------------------------------------

.PHONY: bench shape clean
bench: $(STAMP) ## run every benchmark at its default size
	@for benchmark in benchmarks/*.py; do echo "== $$benchmark"; $(BIN)/python "$$benchmark" || exit 1; done

shape: $(STAMP) ## print the figures that say how much of the code a reader must hold in mind (SHAPE='--list': with names; '--diff': what laws say anew)
	@$(BIN)/python .ci/shape $(SHAPE)

clean: demo-clean ## remove everything that make has made: .venv, caches, .demo
	@rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist *.egg-info spark-warehouse metastore_db derby.log
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
