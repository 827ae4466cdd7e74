# One virtual environment, .venv, made from nothing; stamp files inside it say what is up to date.
# The install is editable: a change of Python code needs no step at all, a change of csrc/ or of the
# dependencies reinstalls (and rebuilds only the translation units that changed, see build/).

PYTHON ?= $(firstword $(shell command -v python3.11 python3))
MODEL ?= smollm2
HOST ?= 127.0.0.1
PORT ?= 8000
WORKLOAD ?= examples/workloads/chat_rag.toml
# Arguments added to a command: make serve ARGS="--max-num-seqs 64"
ARGS ?=
PYTEST_ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
NATIVE_SOURCES := pyproject.toml $(wildcard CMakeLists.txt cmake/*) $(shell find csrc -type f)

.DEFAULT_GOAL := help
.PHONY: help serve install dev lint types floors cpp-format test test-all test-arm size bench-machine bench-latency bench-throughput bench-guard bench-kv fidelity format clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# --- run ---------------------------------------------------------------------------------------

serve: install ## Build if needed, fetch MODEL, serve it on HOST:PORT with an OpenAI API
	@exec $(BIN)/octavo serve $(MODEL) --host $(HOST) --port $(PORT) $(ARGS)

# An environment that has the dev extra keeps it.
install: $(or $(wildcard $(VENV)/.installed-dev),$(VENV)/.installed) ## Make .venv and install Octavo into it (no dev extra)

dev: $(VENV)/.installed-dev ## The same with the dev extra: tools, test oracles

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: $(NATIVE_SOURCES) | $(BIN)/python
	@echo 'Building and installing Octavo into $(VENV): a minute or so'
	@$(PIP) install -qq -e .
	@touch $@

$(VENV)/.installed-dev: $(NATIVE_SOURCES) | $(BIN)/python
	@echo 'Building and installing Octavo with its dev extra into $(VENV): a few minutes the first time'
	@$(PIP) install -qq -e '.[dev]' -C cmake.define.CMAKE_COMPILE_WARNING_AS_ERROR=ON
	@touch $@

# --- check -------------------------------------------------------------------------------------

lint: dev
	$(BIN)/ruff check -q .
	$(BIN)/ruff format -q --check .

types: dev
	$(BIN)/mypy

floors: dev
	$(BIN)/lint-imports --no-cache

cpp-format: dev
	find csrc -name '*.hpp' -o -name '*.cpp' | xargs $(BIN)/clang-format --dry-run -Werror

test: lint cpp-format floors types ## From nothing: lint, types, floors, C++ build, tests (under 10 minutes)
	$(BIN)/python -m pytest -q -m 'not slow' $(PYTEST_ARGS)

test-all: lint cpp-format floors types ## test, and the long ones: every instruction set and thread count, soak, Arm under qemu
	$(BIN)/python tests/run_all.py $(PYTEST_ARGS)

test-arm: dev ## The Arm kernels, cross-built and run under qemu-user
	$(BIN)/python -m pytest -q -rs tests/native/test_arm.py $(PYTEST_ARGS)

format: dev ## Format Python and C++, fix what lint can fix
	$(BIN)/ruff check -q --fix . ; $(BIN)/ruff format -q .
	find csrc -name '*.hpp' -o -name '*.cpp' | xargs $(BIN)/clang-format -i

size: ## Measure a fresh install without the dev extra (limit 250 MB)
	$(PYTHON) benchmarks/install_size.py

# --- measure -----------------------------------------------------------------------------------

bench-machine: install ## This machine's read bandwidth and arithmetic rates
	$(BIN)/octavo bench machine $(ARGS)

bench-latency: install ## One stream: prefill and decode, against the machine's limits
	$(BIN)/octavo bench latency $(MODEL) $(ARGS)

bench-throughput: install ## Many requests: tokens a second, KV efficiency
	$(BIN)/octavo bench throughput $(MODEL) $(ARGS)

bench-guard: install ## Kernels, steps and Python against fixed loops and the committed results; ends with 1 if something became slower
	PYTHONPATH=. $(BIN)/python -m benchmarks.guard $(ARGS)

bench-kv: install ## KV policies compared on one load, drawn in build/kv (WORKLOAD, a file)
	$(BIN)/octavo bench kv $(MODEL) --workload $(WORKLOAD) --report build/kv $(ARGS)

fidelity: dev ## Compare with golden outputs and with transformers in fp32
	$(BIN)/python -m benchmarks.fidelity.golden $(ARGS)
	$(BIN)/python -m benchmarks.fidelity.text $(ARGS)

clean: ## Remove everything that was built
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
