# SPDX-License-Identifier: Apache-2.0
# The one entry point: `make help` lists the targets. CI runs `make test` and nothing else.
# Needs make, git and Python 3.11 or newer with venv and pip; everything else goes into .venv.

SHELL := /bin/sh
.SHELLFLAGS := -euc
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

PYTHON ?= python3
VENV ?= .venv
PY := $(VENV)/bin/python
# Twice quiet: errors are shown, progress and warnings are not.
PIP := $(PY) -m pip --disable-pip-version-check --quiet --quiet
# How many tests or checks run at the same time.
JOBS ?= $(shell nproc 2>/dev/null || getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
# Processes of each of the two test runs: one more than that, because tests also wait, for a server or for a program of theirs.
TESTERS = $(shell expr $(JOBS) + 1)
# The tests whose coverage is measured; tests/tracing.py leaves out what covers nothing more. The others mostly start programs.
MEASURED := tests/unit tests/conformance tests/e2e tests/wire tests/wire_store
# What each of several targets prints stays together, where make can do that (4.0 and newer).
TOGETHER := $(if $(filter output-sync,$(.FEATURES)),--output-sync=target)
# Tests make thousands of small databases, and wait for the disk at each commit; in memory, where that has room for them, they do not.
SCRATCH := $(shell [ "$$(df -Pk /dev/shm 2>/dev/null | awk 'NR == 2 { print $$4 }')" -gt 2000000 ] 2>/dev/null && \
	echo /dev/shm || echo "$${TMPDIR:-/tmp}")/redrive-tests-$(shell echo $$PPID)
# Where the test runs leave what the requirement table is made from.
RESULTS := build/requirement-results
# `make test` runs the same Hypothesis examples everywhere; `make test-fast` looks for new ones.
export HYPOTHESIS_PROFILE ?= dev
# Every program that a test starts would compile redrive anew.
unexport PYTHONDONTWRITEBYTECODE

UV := uv==0.13.8
UV_COMPILE := pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--custom-compile-command "make lock"

.PHONY: help
help: ## List the targets
	@awk 'BEGIN { FS = ":.*## " } /^[a-z][a-z0-9-]*:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# --- Environments ---------------------------------------------------------------------------------------------------

.PHONY: setup
setup: $(VENV)/.run-ready ## Build .venv with what redrive needs to run

.PHONY: setup-dev
setup-dev: $(VENV)/.dev-ready ## Build .venv with what tests, checks and benchmarks need too

# A venv that works is kept; one left half-built by an interrupted run is built again.
$(VENV)/.created:
	@command -v "$(PYTHON)" >/dev/null || { echo "error: no '$(PYTHON)' found; install Python 3.11 or newer, or name one: make PYTHON=/path/to/python3" >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "error: redrive needs Python 3.11 or newer, and '$(PYTHON)' is $$("$(PYTHON)" -V 2>&1); name another: make PYTHON=python3.11" >&2; exit 1; }
	@"$(PYTHON)" -c 'import ensurepip, venv' 2>/dev/null || \
		{ echo "error: '$(PYTHON)' comes without venv or pip; on Debian and Ubuntu install them with: apt-get install python3-venv" >&2; exit 1; }
	@$(PY) -c 'import pip' 2>/dev/null || "$(PYTHON)" -m venv --clear $(VENV)
	@touch $@

# Without dependencies: the pins are complete, and with hashes pip takes the extras of a dependency for something unpinned.
$(VENV)/.run-pins: requirements/run.txt | $(VENV)/.created
	@echo "setup: installing what redrive needs into $(VENV)"
	@$(PIP) install --no-deps -r requirements/run.txt
	@touch $@

# dev.txt holds every pin of run.txt, so one installation serves both.
$(VENV)/.dev-pins: requirements/dev.txt requirements/run.txt | $(VENV)/.created
	@echo "setup: installing what redrive and its development need into $(VENV) (a minute or two the first time)"
	@$(PIP) install --no-deps -r requirements/dev.txt
	@touch $(VENV)/.run-pins $@

# The package itself is installed in place, so only a change of its metadata asks for it again.
$(VENV)/.run-ready: $(VENV)/.run-pins pyproject.toml
	@$(PIP) install --no-deps -e .
	@touch $@

$(VENV)/.dev-ready: $(VENV)/.dev-pins pyproject.toml
	@$(PIP) install --no-deps -e .
	@touch $(VENV)/.run-ready $@

# The pages of the applications are tested in a real browser.
.PHONY: setup-browser
setup-browser:
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null || { \
		if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
			echo "setup: installing Chromium"; \
			apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install --yes --no-install-recommends chromium >/dev/null; \
		else \
			echo "error: the tests need Chromium; on Debian and Ubuntu install it with: apt-get install chromium" >&2; exit 1; \
		fi; }

# --- Use ------------------------------------------------------------------------------------------------------------

.PHONY: run
run: setup ## Set up and show redrive at work: redrive demo
	@$(VENV)/bin/redrive demo

.PHONY: app-criticizer
app-criticizer: setup-dev ## Criticizer on its embedded defaults: a small change is reviewed by a linter
	@$(PY) -m apps.criticizer demo

.PHONY: app-collabiq
app-collabiq: setup ## CollabIQ on its embedded defaults: a small mailbox becomes pages
	@$(PY) -m apps.collabiq demo

.PHONY: app-forge
app-forge: setup-dev ## Forge on its embedded defaults: samples are labelled by a local model and embedded; leaves pictures
	@rm -rf build/forge && mkdir -p build/forge
	@$(PY) -m apps.forge demo --out build/forge/demo

.PHONY: app-forge-long
app-forge-long: setup-dev ## The same with 100,000 samples: minutes, in flat memory
	@rm -rf build/forge-long && mkdir -p build/forge-long
	@$(PY) -m apps.forge demo --out build/forge-long/demo --count 100000 --rate 2000

.PHONY: app-pdf2xml
app-pdf2xml: setup-dev ## PDF to XML on its embedded defaults: API, worker and gateway, with a sample; ^C ends it
	@$(PY) -m apps.pdf2xml demo

.PHONY: load-pdf2xml
load-pdf2xml: setup-dev ## 500 uploads at once to PDF to XML: how long its list of jobs takes meanwhile
	@$(PY) -m apps.pdf2xml.load

.PHONY: app-fetchbox
app-fetchbox: setup-dev ## FetchBox on its embedded defaults: broker, API and worker fetch a sample; ^C ends it
	@$(PY) -m apps.fetchbox demo

.PHONY: bench-fetchbox
bench-fetchbox: setup-dev ## Measure FetchBox beside a bare script that transfers the same files
	@$(PY) -m apps.fetchbox.tests.transfer_speed

# Peers on PostgreSQL bring other versions of what redrive needs, and so have an environment of their own.
.PHONY: setup-bench
setup-bench: build/bench-peers/.ready ## Install the peers of the benchmark on PostgreSQL; needs a package index
build/bench-peers/.ready: bench/peers/postgres/requirements.txt | $(VENV)/.created
	@mkdir -p build
	@"$(PYTHON)" -m venv build/bench-peers
	@build/bench-peers/bin/python -m pip --disable-pip-version-check --quiet --quiet install -r bench/peers/postgres/requirements.txt
	@touch $@

.PHONY: bench
bench: setup-dev setup-bench ## Measure redrive beside its peers
	@$(PY) -m bench

# --- Tests ----------------------------------------------------------------------------------------------------------

# Side by side: one run mostly computes, the other mostly starts programs and waits for them, and meanwhile one check after the other
# is made. What each prints stays together; one that fails does not keep the others from their end, but fails the whole.
.PHONY: test test-measured test-others report-core report-rest report-requirements
test: export HYPOTHESIS_PROFILE = ci
test: setup-dev setup-browser ## Everything CI needs: check, all tests, coverage, requirements
	@rm -rf $(RESULTS) .coverage .coverage.*
	@mkdir -p "$(SCRATCH)"
	@echo "all tests, in two runs, and the checks, side by side; each prints when it has ended"
	@TMPDIR="$(SCRATCH)" $(MAKE) --jobs=3 --keep-going $(TOGETHER) test-measured test-others $(STATIC)
	@$(PY) -m coverage combine --quiet
	@$(MAKE) --jobs=$(JOBS) --keep-going $(TOGETHER) report-core report-rest report-requirements
	@rm -rf "$(SCRATCH)"

test-measured:
	@REDRIVE_REQUIREMENT_RESULTS=$(RESULTS)/measured.json $(PY) -m coverage run -m pytest -q -n $(TESTERS) --dist=worksteal $(MEASURED)

test-others:
	@REDRIVE_REQUIREMENT_RESULTS=$(RESULTS)/others.json $(PY) -m pytest -q -n $(TESTERS) --dist=loadgroup $(addprefix --ignore=,$(MEASURED))

report-core:
	@echo "coverage of the core: all of it"
	@$(PY) -m coverage report --include='src/redrive/core/*' --fail-under=100

report-rest:
	@echo "coverage of the rest: at least 97 %"
	@$(PY) -m coverage report --omit='src/redrive/core/*' --fail-under=97

report-requirements:
	@$(PY) -m tools.requirements --results $(RESULTS)/*.json --open docs/requirements-open.txt

.PHONY: test-fast
test-fast: setup-dev ## The unit tests alone
	@$(PY) -m pytest -q -n $(JOBS) tests/unit

.PHONY: test-postgres
test-postgres: setup-dev ## The tests of every command over PostgreSQL, too
	@REDRIVE_TEST_STORES=all $(PY) -m pytest -q -n $(JOBS) -k postgres tests/e2e

DEBIAN_POSTGRES ?= /usr/lib/postgresql/15/bin
.PHONY: conformance-debian
conformance-debian: setup-dev ## The conformance suite on Debian's PostgreSQL 15 (apt-get install postgresql)
	@test -x $(DEBIAN_POSTGRES)/postgres || { echo "error: there is no $(DEBIAN_POSTGRES)/postgres; install it with: apt-get install postgresql" >&2; exit 1; }
	@REDRIVE_TEST_POSTGRES=$(DEBIAN_POSTGRES) $(PY) -m tests.conformance

.PHONY: conformance-pgbouncer
conformance-pgbouncer: setup-dev ## The conformance suite through PgBouncer in transaction mode (apt-get install pgbouncer)
	@$(PY) -m tests.conformance pgbouncer

.PHONY: conformance-partitions
conformance-partitions: setup-dev ## The conformance suite on PostgreSQL with the attempts in partitions
	@$(PY) -m tests.conformance partitions

.PHONY: app-tests-postgres
app-tests-postgres: setup-dev setup-browser ## The whole suites of the applications, with their jobs on PostgreSQL
	@REDRIVE_TEST_STORES=postgres $(PY) -m pytest -q -n $(JOBS) apps

.PHONY: test-changed
test-changed: setup-dev ## The tests that belong to the files that differ from origin
	@$(PY) -m tools.changed_tests -q -n $(JOBS)

SEED ?= 1
COUNT ?= 200
.PHONY: sim
sim: setup-dev ## Run COUNT seeds of the simulation, from SEED on
	@$(PY) -m tests.simulation $(SEED) $(COUNT)

.PHONY: sim-postgres
sim-postgres: setup-dev ## The simulation with its store on PostgreSQL, 50 seeds, and the sweep of every call to it
	@REDRIVE_TEST_STORES=all $(PY) -m pytest -q -n $(JOBS) tests/simulation/test_postgres.py tests/faults/test_sweep.py

SECONDS ?= 600
.PHONY: soak
soak: setup-dev ## Four processes under load, killed now and then, for SECONDS (600); then power cuts
	@$(PY) -m tests.faults.soak --seconds $(SECONDS)

ROWS ?= 1000000
.PHONY: plans
plans: setup-dev ## Check the plans of all hot statements on PostgreSQL with ROWS (1000000) rows: minutes
	@REDRIVE_PLAN_ROWS=$(ROWS) $(PY) -m pytest -q -n 0 tests/unit/store/postgres/test_plans.py

.PHONY: soak-postgres
soak-postgres: setup-dev ## Faults of a PostgreSQL server under load, with how soon the work is back at its pace: 20 minutes
	@$(PY) -m tests.faults.soak_postgres

EXAMPLES ?= 5000
.PHONY: fuzz
fuzz: setup-dev ## Give EXAMPLES (5000) made-up inputs to whatever reads from outside: minutes
	@FUZZ_EXAMPLES=$(EXAMPLES) HYPOTHESIS_PROFILE=dev $(PY) -m pytest -q -n $(JOBS) tests/fuzz

.PHONY: requirements
requirements: setup-dev ## Print which requirement is proved by which tests
	@$(PY) -m tools.requirements -- -q -n $(JOBS)

# --- Checks ---------------------------------------------------------------------------------------------------------

# The slowest first, because they run side by side.
STATIC := check-mypy check-pyright check-lint check-bandit check-spelling check-imports check-format
.PHONY: check check-static check-types check-tidy $(STATIC)
check: check-static check-tidy check-audit ## Format, lint, types, import direction, spelling, tidiness, vulnerabilities of the pins

check-static: setup-dev
	@$(MAKE) --jobs=$(JOBS) $(TOGETHER) $(STATIC)

check-types: check-mypy check-pyright

check-mypy: setup-dev
	@$(PY) -m mypy --no-error-summary

check-pyright: setup-dev
	@$(PY) -m basedpyright

check-lint: setup-dev
	@$(PY) -m ruff check --quiet .

# Only what runs for users: tests do dangerous things on purpose.
check-bandit: setup-dev
	@$(PY) -m bandit --quiet --recursive --configfile pyproject.toml --exclude '*/tests/*' src apps tools

check-spelling: setup-dev
	@$(PY) -m codespell_lib .

check-imports: setup-dev
	@$(PY) -c 'from importlinter.cli import lint_imports_command; lint_imports_command()' --no-logo --no-cache

check-format: setup-dev
	@$(PY) -m ruff format --quiet --diff .

check-tidy: setup-dev
	@$(PY) -m pytest -q -n $(JOBS) tests/test_tidy.py tests/test_exports.py tests/test_docs.py

.PHONY: fmt
fmt: setup-dev ## Format the code and apply the safe fixes
	@$(PY) -m ruff check --quiet --fix-only .
	@$(PY) -m ruff format --quiet .

# --- Generated files ------------------------------------------------------------------------------------------------

.PHONY: docs
docs: setup-dev ## Write the generated pages under docs/ anew
	@$(PY) -m tools.docs

# The compiler writes no licence line, so it is added.
.PHONY: fetchbox-proto
fetchbox-proto: setup-dev ## Write FetchBox's protobuf module anew from its .proto file
	@cd apps/fetchbox/dead_letters && $(abspath $(PY)) -m grpc_tools.protoc -I. --python_out=. --pyi_out=. deadletter.proto && \
		for file in deadletter_pb2.py deadletter_pb2.pyi; do \
			{ echo "# SPDX-License-Identifier: Apache-2.0"; cat $$file; } > $$file.new && mv $$file.new $$file; done

.PHONY: lab
lab: setup ## Simulate the storm of the laboratory, and write its figures into the page
	@$(VENV)/bin/redrive lab storm --overloads --seeds 20 --strategy jittered --strategy full-jitter --strategy limit --strategy adaptive --into docs/how-to/choose-a-retry-policy.md

.PHONY: lock
lock: setup-dev ## Pin requirements/*.txt anew from pyproject.toml
	@$(PIP) install $(UV)
	@$(PY) -m uv $(UV_COMPILE) pyproject.toml --output-file requirements/run.txt
	@$(PY) -m uv $(UV_COMPILE) pyproject.toml --extra dev --extra bench --constraint requirements/run.txt --output-file requirements/dev.txt
	@! grep -nE '^(--|-i )|https?://|file:' requirements/*.txt || { echo "error: a pinned file names a host or an option" >&2; exit 1; }

# Strict: a pin that nobody knows, as behind a mirror without the data, is a failure and not a success.
AUDIT := $(PY) -m uv tool run --quiet pip-audit@2.9.0 --strict --disable-pip --require-hashes -r requirements/run.txt -r requirements/dev.txt
.PHONY: audit check-audit
audit: setup-dev ## Compare the pins with the known vulnerabilities; needs a network
	@$(PY) -m uv --version >/dev/null 2>&1 || $(PIP) install $(UV)
	@$(AUDIT)

# Where a network allows it. Not part of `make test`: what it finds changes without a change of ours.
check-audit: setup-dev
	@$(PY) -m uv --version >/dev/null 2>&1 || $(PIP) install $(UV)
	@said=$$($(AUDIT) 2>&1) || case "$$said" in \
	*"could not be audited"* | *"ailed to fetch"* | *"No solution"* | *"onnection"*) said="not audited: the known vulnerabilities cannot be read from here" ;; \
	*) echo "$$said" >&2; exit 1 ;; esac; echo "$$said"

.PHONY: clean
clean: ## Remove everything that can be made again, .venv included
	@rm -rf $(VENV) build dist htmlcov .coverage .coverage.* .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
