# Every target sets up what it needs in .venv by itself, from nothing.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PYX    := $(shell find src -name '_*_c.pyx')

.DEFAULT_GOAL := help
.PHONY: help setup build demo check test test-main test-others slow java bench clean

help:  ## Show this list.
	@grep -E '^[a-z]+:.*## ' Makefile | sed -E 's/:.*## /\t/' | expand -t 10

$(VENV)/.ready: pyproject.toml setup.py
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --upgrade pip setuptools wheel cython
	$(BIN)/pip install --quiet --disable-pip-version-check --no-build-isolation --editable '.[dev]'
	touch $@

$(VENV)/.built: $(VENV)/.ready $(PYX)
	$(BIN)/python setup.py --quiet build_ext --inplace
	touch $@

setup: $(VENV)/.ready  ## Make .venv with everything that development needs.

build: $(VENV)/.built  ## Compile the Cython twins in place.

demo: build  ## See it at work: a cluster, a broker that is killed, and the orders in Spark.
	$(BIN)/flaremq demo

check: build  ## Lint, format, types and import contracts.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy src tests benches examples
	$(BIN)/lint-imports --no-cache

test: build  ## All quick tests, on the compiled twins and on the Python twins; two runs at a time.
	$(MAKE) --no-print-directory --output-sync=target --jobs=2 test-main test-others

test-main:
	FLAREMQ_COMPILED=1 $(BIN)/pytest --ignore=tests/spark

test-others:
	$(BIN)/pytest tests/spark
	FLAREMQ_PURE=1 $(BIN)/pytest -q tests/model tests/protocol tests/store tests/arrow tests/remoting/test_turn.py tests/broker/test_lanes.py
	$(BIN)/pytest -q tests/java -m smoke

slow: build  ## Longer runs of the property and crash tests.
	$(BIN)/pytest -m slow

java: build  ## Everything against the real Apache RocketMQ.
	$(BIN)/pytest tests/java -m java

bench: build  ## Measure, beside Apache RocketMQ where it can be had: the store, brokers, clients, Spark.
	$(BIN)/python -m benches
	$(BIN)/python -m benches wire
	$(BIN)/python -m benches clients
	$(BIN)/python -m benches spark

clean:  ## Remove what was built.
	rm -rf build $(VENV)/.built
	find src -name '*.so' -delete
