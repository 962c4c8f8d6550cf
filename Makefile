# Targets are thin: each calls one program. `make help` lists them.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
TOOLS := .tools
export PATH := $(CURDIR)/$(BIN):$(CURDIR)/$(TOOLS)/bin:$(PATH)

.DEFAULT_GOAL := help
.PHONY: help setup servers demo test check format bench protos docs clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{ printf "  %-10s %s\n", $$1, $$2 }'

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@

setup: $(VENV)/.installed ## create .venv with the pinned packages

servers: ## unpack consul and prometheus into .tools, without root
	@tests/servers/fetch.sh $(TOOLS)

demo: setup ## run everything on this machine: real Envoy, simulated model servers, load
	@$(BIN)/trimtab demo $(DEMO_FLAGS)

check: setup ## lint, formatting, types, import rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: setup servers check ## every check and every test
	$(BIN)/pytest

format: setup ## format and fix what can be fixed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

protos: setup ## compile protos/ into controlplane/xds/server
	$(BIN)/python -m grpc_tools.protoc -Iprotos --python_out=controlplane/xds/server --pyi_out=controlplane/xds/server protos/discovery.proto

docs: setup ## write the generated reference pages
	$(BIN)/python -m controlplane.cli.reference docs/reference

bench: setup servers ## measure and print the benchmark tables
	$(BIN)/python benchmarks/run.py

clean: ## remove everything that was made
	rm -rf $(VENV) $(TOOLS) build .mypy_cache .ruff_cache .pytest_cache .hypothesis *.egg-info
