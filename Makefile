# Two commands for a newcomer: `make demo` and `make test`. They need Python 3.11+ and make, nothing
# else; each prepares the virtual environment that it needs. Works with GNU make 3.81 (macOS).
#
#   PYTHON=python3.13   the Python to build with (default: the first one that is new enough)
#   VENV=.venv-3.13     where the environment lives
#   ARGS="-k retry -x"  more arguments for pytest or the benchmark

SHELL := /bin/sh
.SUFFIXES:
.DELETE_ON_ERROR:

VENV ?= .venv
# Asked each time, because a name on the PATH may be a shim of a version that is not installed.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python3.14 python; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && echo $$p && break; \
	done)
PY := $(VENV)/bin/python
ARGS ?=

# An environment whose Python has gone (upgraded, moved) is built again, whatever its stamp says.
ALIVE := $(shell $(PY) -c 'print("yes")' 2>/dev/null)
REBUILD := $(if $(ALIVE),,force)

# Seeds of the fault simulation: a number, or FIRST-END.
SEEDS ?= 10000

.PHONY: help demo test up check bench soak chaos clean force
help:
	@echo 'make demo   run a real workflow on this machine, show its report and history'
	@echo 'make test   run all tests'
	@echo 'make up     start the platform and keep it running (http://127.0.0.1:7071)'
	@echo 'make check  lint, format, types, import rules'
	@echo 'make bench  measure throughput and latency'
	@echo 'make soak   simulate faults, SEEDS=10000 or SEEDS=FIRST-END'
	@echo 'make chaos  kill workers of a real platform under load, ARGS="--seconds 60 --kill-every 3"'
	@echo 'make clean  remove environments, caches and local data'

demo: $(VENV)/.stamp-local
	@$(PY) -m orchestrator demo

test: $(VENV)/.stamp-dev
	@$(PY) -m pytest $(ARGS)

up: $(VENV)/.stamp-local
	@$(PY) -m orchestrator up $(ARGS)

check: $(VENV)/.stamp-dev
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(VENV)/bin/basedpyright --project pyproject.toml --pythonpath $(PY)
	$(VENV)/bin/lint-imports

bench: $(VENV)/.stamp-dev
	@$(PY) -m bench.throughput $(ARGS)
	@$(if $(filter-out --quick --json,$(ARGS)),,$(PY) -m bench.fairness $(ARGS))

soak: $(VENV)/.stamp-dev
	@$(PY) -m tests.simulation $(SEEDS) $(ARGS)

chaos: $(VENV)/.stamp-dev
	@$(PY) -m bench.chaos $(ARGS)

clean:
	rm -rf .venv .venv-* .weft build dist *.egg-info
	rm -rf .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamp comes last: an interrupted installation has none and starts afresh. A changed
# pyproject.toml or requirements.txt does too, so that nothing old stays behind.
$(VENV)/.stamp-local: pyproject.toml requirements.txt $(REBUILD)
	@test -n "$(PYTHON)" || { echo 'Weft needs Python 3.11 or newer, and none was found.' \
		'Install one, or name it: make PYTHON=/path/to/python3'; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo 'Weft needs Python 3.11 or newer, and $(PYTHON) is not.' \
		'Name another: make PYTHON=/path/to/python3'; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { \
		echo '$(PYTHON) has no venv or ensurepip, so no environment can be made.' \
		'On Debian or Ubuntu: apt install python3-venv'; exit 1; }
	@echo "Preparing $(VENV) with `$(PYTHON) -V` (once)"
	@rm -f "$(VENV)"/.stamp-*
	@rm -rf "$(VENV)"
	@$(PYTHON) -m venv "$(VENV)"
	@$(PY) -m pip install --quiet --disable-pip-version-check --editable '.[local]'
	@touch $@

$(VENV)/.stamp-dev: $(VENV)/.stamp-local
	@echo 'Adding the test tools (once)'
	@$(PY) -m pip install --quiet --disable-pip-version-check --editable '.[local,dev]'
	@touch $@
