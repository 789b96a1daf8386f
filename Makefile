# Needs make and Python 3.11 or newer, nothing else. Every target prepares its own virtual environment in .venv.

.DEFAULT_GOAL := help
SHELL := /bin/sh
MAKEFLAGS += --no-print-directory
# Compiled modules are kept: importing our libraries without them costs seconds at every start.
export PYTHONDONTWRITEBYTECODE =
export PIP_DISABLE_PIP_VERSION_CHECK = 1

BIN := .venv/bin
RUNTIME := .venv/.stamp-runtime
DEV := .venv/.stamp-dev

PIN = $(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes --no-annotate --quiet \
  --custom-compile-command "make pin" $(if $(call on,$(UPGRADE)),--upgrade)

# `VARIABLE=0` means the same as not giving it.
on = $(filter-out 0 no false,$(1))

.NOTPARALLEL:
.PHONY: help demo up test test-agents mcpclients check golden screenshots faults mutants covered bench dojo chaos docs requirements pin sbom clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' Makefile

demo: $(if $(filter moto,$(AWS)),$(DEV),$(RUNTIME)) ## See it work, with stand-ins for Slack and ServiceNow (AUTO=1: no questions; AWS=moto: SQS and S3 stand-ins too)
	@$(BIN)/counterseal demo $(if $(call on,$(AUTO)),--auto) $(if $(AWS),--aws $(AWS))

up: $(RUNTIME) ## Run everything in one process
	@$(BIN)/counterseal up

test: $(DEV) ## Run all tests (ONLY=tests/kernel: these; DEEP=1: longer random and crash searches)
	@$(if $(call on,$(DEEP)),COUNTERSEAL_DEEP=1) $(BIN)/pytest --numprocesses logical --dist worksteal $(ONLY)

MCP := build/mcp-clients

mcpclients: $(DEV) ## Install the MCP clients of others, and drive the server with them (needs a network and npm)
	@for client in "official mcp==2.3.0" "fast fastmcp-tasks==4.1.4 fastmcp==4.1.4" "strands strands-agents==1.62.0"; do \
	  set -- $$client; place=$(MCP)/$$1; shift; \
	  test -x $$place/bin/python || $(BIN)/python -m venv $$place; $$place/bin/python -m pip install --quiet "$$@" || exit 1; \
	done
	@mkdir -p $(MCP)/node && npm install --silent --prefix $(MCP)/node @modelcontextprotocol/sdk@1.32.2
	@COUNTERSEAL_MCP_CLIENTS=$(CURDIR)/$(MCP) $(BIN)/pytest tests/app/test_mcp_clients.py

# Each framework has an environment of its own: they do not agree on their dependencies.
test-agents: $(DEV) ## Run the matrix of docs/agents-matrix.md against the frameworks, pinned and newest (ONLY="crewai strands", EDITIONS="pinned newest")
	@set -e; \
	for framework in $(or $(ONLY),langchain openai crewai pydantic strands smolagents llamaindex adk maf claude_sdk); do \
		for edition in $(or $(EDITIONS),pinned newest); do \
			folder=build/agents/$$framework-$$edition; wanted=packages/agents/requirements/$$framework.txt; \
			echo "$$framework, $$edition:"; \
			test -x $$folder/bin/python || $(BIN)/python -m venv $$folder; \
			test $$edition = pinned || { sed 's/==.*//' $$wanted > $$folder/newest.txt; wanted=$$folder/newest.txt; }; \
			$$folder/bin/python -m pip install --quiet --upgrade -r $$wanted "httpx>=0.28.1,<0.29" "rfc8785>=0.1.4,<0.2" pytest pytest-timeout; \
			$$folder/bin/python -m pytest -c packages/agents/pytest.ini --confcutdir=tests/agents -k $$framework tests/agents/test_matrix.py tests/agents/test_adapters.py; \
		done; \
	done

golden: $(DEV) ## Write the golden files of the public contracts anew; read their difference before you commit it
	@COUNTERSEAL_WRITE_GOLDEN=1 $(BIN)/pytest -m golden
	@git diff --stat -- tests/golden

screenshots: $(DEV) ## Draw every state of a card, and every window, into docs/images
	@$(BIN)/python -m tools.screenshots

check: $(DEV) ## Check style, format, types, the direction of imports and the weight of the tests
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python tools/weight.py

faults: $(DEV) ## Plant every fault of the register, and see that its tests find it (ONLY=name or area, SINCE=commit, JOBS=2)
	@PYTHONPATH=. $(BIN)/python tools/plant.py $(if $(ONLY),--only $(ONLY)) $(if $(SINCE),--since $(SINCE)) --jobs $(or $(JOBS),2)

mutants: $(DEV) ## Change the pure packages at random places, and count what no test sees (ONLY=policy, SAMPLE=80, SEED=4)
	@PYTHONPATH=. $(BIN)/python tools/mutants.py $(if $(ONLY),--only $(ONLY)) $(if $(SEED),--seed $(SEED)) --sample $(or $(SAMPLE),80)

covered: $(DEV) ## Show how much of the pure engine runs without a database
	@PYTHONPATH=. $(BIN)/python tools/statements.py

bench: $(DEV) ## Measure against the budgets (PEERS=1: other engines too, about a quarter of an hour more)
	@$(BIN)/python -m benchmarks

dojo: $(DEV) ## Set AgentDojo's attacks on policies of agents (QUICK=1: without a runtime; ORDERS=all; ONLY="blind repaired")
	@$(BIN)/python -m benchmarks.dojo $(if $(call on,$(QUICK)),--quick) $(if $(ORDERS),--orders $(ORDERS)) $(if $(ONLY),--policies $(ONLY))

chaos: $(DEV) ## Break everything for some minutes, and see that nothing is lost (SEED=1 MINUTES=3 QUEUE=postgres or sqs)
	@$(BIN)/python -m chaos --scenario $(or $(SCENARIO),storm) --connections $(or $(CONNECTIONS),1500) --seed $(or $(SEED),1) --minutes $(or $(MINUTES),3) --queue $(or $(QUEUE),postgres)

docs: $(DEV) ## Write the generated parts of docs/ anew
	@$(BIN)/python tools/generate_docs.py

requirements: $(DEV) ## Show which tests prove which requirement (JSON=1: as JSON)
	@$(BIN)/python tools/requirements_report.py $(if $(call on,$(JSON)),--json)

pin: $(DEV) ## Write requirements*.txt anew, with hashes, for every platform (UPGRADE=1: the newest that pyproject.toml allows)
	@$(PIN) pyproject.toml --output-file requirements.txt
	@$(PIN) pyproject.toml --extra dev --constraint requirements.txt --output-file requirements-dev.txt

sbom: $(DEV) ## Write sbom.json, the bill of materials (CycloneDX 1.5), from requirements.txt
	@$(BIN)/python tools/sbom.py sbom.json

clean: ## Remove the virtual environment and caches; your data in .counterseal and .counterseal-demo stays
	@rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis build dist
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(RUNTIME): requirements.txt pyproject.toml
	@$(prepare_venv)
	@echo "Installing Counterseal into .venv (once; about half a minute) ..."
	@$(BIN)/python -m pip install --quiet -r requirements.txt
	@$(BIN)/python -m pip install --quiet --no-deps --editable .
	@touch $@

$(DEV): requirements-dev.txt requirements.txt pyproject.toml
	@$(prepare_venv)
	@echo "Installing Counterseal and its development tools into .venv (once; about a minute) ..."
	@$(BIN)/python -m pip install --quiet -r requirements-dev.txt
	@$(BIN)/python -m pip install --quiet --no-deps --editable .
	@touch $(RUNTIME) $@

# A Python counts when it runs (pyenv leaves names behind that do not), is new enough and can make virtual environments.
define prepare_venv
set -e; \
if $(BIN)/python -c 'import sys, pip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then exit 0; fi; \
incomplete=; \
for python in $(or $(PYTHON),python3.13 python3.12 python3.11 python3 python); do \
	"$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 || continue; \
	"$$python" -c 'import ensurepip, venv' >/dev/null 2>&1 || { incomplete="$$python"; continue; }; \
	echo "Making .venv with $$("$$python" --version) ..."; \
	rm -rf .venv; \
	"$$python" -m venv .venv; \
	exit 0; \
done; \
if [ -n "$$incomplete" ]; then \
	echo "$$incomplete cannot make virtual environments: its module venv or ensurepip is missing." >&2; \
	echo "On Debian or Ubuntu: apt-get install python3-venv. Then run make again." >&2; \
else \
	echo "No Python 3.11 or newer was found$(if $(PYTHON), at PYTHON=$(PYTHON))." >&2; \
	echo "Install one (https://www.python.org/downloads/), or name it: make PYTHON=/path/to/python3.13 ..." >&2; \
fi; \
exit 1
endef
