# Every target sets up what it needs in .venv by itself, from nothing.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PYX    := $(shell find src -name '_*_c.pyx' -o -name '_*.h' -o -name '_*.pxi')
PIP    := $(BIN)/pip --quiet --disable-pip-version-check install
LOGS   := build/tests

# Tests start many Python processes, and without bytecode each compiles what it imports anew. Empty is as if unset.
export PYTHONDONTWRITEBYTECODE :=

SHELL       := bash
.SHELLFLAGS := -o pipefail -c

# How many at a time, unless that was said already, as in .ci/run.
jobs = $(if $(findstring jobserver,$(MAKEFLAGS)),,--jobs=$(1))

.DEFAULT_GOAL := help
.PHONY: help setup build demo check test test-main test-house test-cli test-servers test-sim test-store test-spark test-python test-java slow sim java bench clean

help:  ## Show this list.
	@grep -E '^[a-z]+:.*## ' Makefile | sed -E 's/:.*## /\t/' | expand -t 10

$(VENV)/.tools: setup.py
	@echo "[1/4] Making a virtual environment in $(VENV): a few seconds."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "[2/4] Installing what builds FlareMQ (pip, setuptools, wheel, Cython): some 10 seconds."
	@$(PIP) --upgrade pip setuptools wheel cython
	@touch $@

$(VENV)/.ready: pyproject.toml setup.py $(VENV)/.tools
	@echo "[3/4] Installing FlareMQ and what it is developed with (Spark, a Java runtime, Arrow, pandas, Delta, Iceberg, pytest,"
	@echo "      mypy, ruff): a minute or two, longer on a slow network. It takes about 1.5 GB in $(VENV)."
	@FLAREMQ_PURE=1 $(PIP) --no-compile --no-build-isolation --editable '.[dev]'  # [4/4] compiles, once and in place.
	@touch $@

$(VENV)/.built: $(VENV)/.tools $(PYX)
	@echo "[4/4] Compiling the modules in place, where they changed: up to two minutes."
	@$(BIN)/python setup.py --quiet build_ext --inplace
	@touch $@

setup: $(VENV)/.ready  ## Make .venv with everything that development needs.

# What is installed comes by the network, so compiling goes on beside it.
build:  ## Set up, and compile the Cython twins in place.
	@$(MAKE) --silent --no-print-directory $(call jobs,2) $(VENV)/.ready $(VENV)/.built

demo: build  ## See it at work: a cluster, a broker that is killed, and the orders in Spark.
	$(BIN)/flaremq demo

check: build  ## Lint, format, types and import contracts.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy src tests benches examples
	$(BIN)/lint-imports --no-cache

# A run of tests: each line has its name before it as soon as it is printed, and its status is pytest's and is kept.
# ALONE=1 takes only what failed in it before. Each run has temporary folders of its own: pytest may take those of a
# run that has just begun for old ones, and remove them when another run ends.
define run
	@mkdir -p $(LOGS)
	@temp=$$(mktemp -d -t flaremq-$(1)-XXXXXX); \
	PYTHONUNBUFFERED=1 $(2) --basetemp=$$temp -o cache_dir=$(LOGS)/$(1).cache \
	$(if $(ALONE),--last-failed --last-failed-no-failures=none) 2>&1 \
	| tee $(LOGS)/$(1)$(if $(ALONE),.alone) | sed -u "s/^/$$(printf '%-7s |' $(1)) /"; \
	status=$$?; test $$status != 0 || rm -rf $$temp; echo $$status > $(LOGS)/$(1).status; exit $$status
endef

# The longest first.
RUNS := spark servers main cli house sim store java python

test: build  ## All quick tests, on the compiled modules and on the Python ones; several runs at a time.
	@rm -rf $(LOGS)
	@echo "$(words $(RUNS)) runs of tests, several at a time, as most of them wait more than they work: $(RUNS)."
	@echo "On two cores they take 15 to 25 minutes. Output is kept in $(LOGS)."
	@status=0; $(MAKE) --no-print-directory $(call jobs,5) --keep-going $(RUNS:%=test-%) || status=$$?; \
	for name in $(RUNS); do test ! -f $(LOGS)/$$name || tail -n 1 $(LOGS)/$$name; done; \
	test $$status = 0 || MAKE="$(MAKE)" .ci/alone $(LOGS) $(RUNS)

# Real servers and clients, most of them in processes of their own.
CLI     := tests/admin tests/cli
SERVERS := tests/client tests/cluster
STORE   := tests/store tests/dledger tests/ha tests/remoting
SIM     := tests/testing
# The house itself, and what it says and shows: its rules, its pages with their examples, the way it is installed.
HOUSE   := tests/deploy $(wildcard tests/test_*.py)
OTHERS  := tests/spark $(CLI) $(SERVERS) $(STORE) $(SIM) $(HOUSE)

test-main:
	$(call run,main,FLAREMQ_COMPILED=1 $(BIN)/pytest $(OTHERS:%=--ignore=%))

test-house:
	$(call run,house,FLAREMQ_COMPILED=1 $(BIN)/pytest $(HOUSE))

test-store:
	$(call run,store,FLAREMQ_COMPILED=1 $(BIN)/pytest $(STORE))

test-cli:
	$(call run,cli,FLAREMQ_COMPILED=1 $(BIN)/pytest $(CLI))

test-servers:
	$(call run,servers,FLAREMQ_COMPILED=1 $(BIN)/pytest $(SERVERS))

test-sim:
	$(call run,sim,FLAREMQ_COMPILED=1 $(BIN)/pytest $(SIM))

test-spark:
	$(call run,spark,$(BIN)/pytest tests/spark)

# What takes a twin by way of the module that chooses one. Files that test both twins have done so in the runs above.
PURE := tests/arrow tests/store tests/remoting/test_turn.py tests/broker/test_lanes.py
BOTH := $(shell grep -rl 'flaremq.testing.twins import' $(PURE))

test-python:
	$(call run,python,FLAREMQ_PURE=1 $(BIN)/pytest $(PURE) $(BOTH:%=--ignore=%))

test-java:
	$(call run,java,$(BIN)/pytest tests/java -m smoke)

slow: build  ## Longer runs of the property and crash tests.
	$(BIN)/pytest -m slow
	$(BIN)/pytest -m 'hypothesis and not slow and not java' --hypothesis-profile=slow

SEEDS ?= 100
sim: build  ## Run seeds of the simulator: SEEDS=1000, or SEED=7 to repeat one; RAFT=1 with Raft groups.
	$(BIN)/python -m flaremq.testing.sim $(if $(RAFT),--groups) $(if $(SEED),--seed $(SEED),--seeds $(SEEDS) --twice 100)

java: build  ## Everything against the real Apache RocketMQ.
	$(BIN)/pytest tests/java -m java

bench: build  ## Measure, beside Apache RocketMQ where it can be had: the store, brokers, clients, Spark.
	$(BIN)/python -m benches
	$(BIN)/python -m benches wire
	$(BIN)/python -m benches kinds
	$(BIN)/python -m benches replicas
	$(BIN)/python -m benches raft
	$(BIN)/python -m benches durability
	$(BIN)/python -m benches dedup
	$(BIN)/python -m benches backlog
	$(BIN)/python -m benches clients
	$(BIN)/python -m benches spark

clean:  ## Remove what was built.
	rm -rf build $(VENV)/.built
	find src -name '*.so' -delete
