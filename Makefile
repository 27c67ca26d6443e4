# `make` alone lists the targets. Every target is one line of glue: the work is in scripts/.
SHELL := /bin/bash
.DEFAULT_GOAL := help
PY := python3            # enough for the series' tooling (standard library and git)
VENV := .venv/bin/python # what runs the engine, plans, tests and lint: `make build`

DEVICE ?=
MODEL ?= all
MEMORY ?= 12GiB
VERSION ?=
export DEVICE

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z][a-z-]*:.*## ' $(firstword $(MAKEFILE_LIST)) | sed -E 's/:.*## /\t/' | expand -t 18

## The series
.PHONY: apply unapply export stg status stats
apply: ## bring the base into vllm/ and apply patches/series
	@$(PY) -m scripts.series apply
# What the targets below need: the series applied, a developer's edits welcome.
.PHONY: applied
applied:
	@$(PY) -m scripts.series apply --if-needed
unapply: ## take the series off again: vllm/ is the plain base
	@$(PY) -m scripts.series unapply
export: ## write the stack in vllm/ to patches/
	@$(PY) -m scripts.series export
stg: ## turn the series in vllm/ into a StGit stack, or back
	@$(PY) -m scripts.series stg
status: ## what is applied, what is dirty, what differs from patches/
	@$(PY) -m scripts.series status
stats: ## lines in new files and in shared files, per patch
	@$(PY) -m scripts.series stats

## Build and run
.PHONY: build demo plan
build: ## an isolated environment in .venv; nothing is compiled (DEVICE=cpu|cuda)
	@$(PY) -m scripts.build
demo: applied build ## a real model answers with a plain and with a compressed cache
	@$(VENV) -m scripts.demo
plan: applied build ## cache groups and capacity before and after patch 0001 (MODEL=, MEMORY=, CONTEXT=, DTYPE=)
	@$(VENV) -m scripts.plan --model "$(MODEL)" --memory "$(MEMORY)" $(if $(CONTEXT),--context $(CONTEXT)) $(if $(DTYPE),--dtype $(DTYPE))

## Compare kernels
.PHONY: ab-old ab-new ab-status ab
ab-old: ## put the pre-patch files of KERNEL= into vllm/
	@$(PY) -m scripts.ab old $(KERNEL)
ab-new: ## restore the patched files
	@$(PY) -m scripts.ab new
ab-status: ## which version is in vllm/
	@$(PY) -m scripts.ab status
ab: ## bench old and new alternately, in fresh processes (KERNEL=, BENCH=, PAIRS=5, FLAGS= of the bench)
	@$(PY) -m scripts.ab bench $(KERNEL) $(BENCH) $(if $(PAIRS),--pairs $(PAIRS)) $(if $(FLAGS),--flags='$(FLAGS)')

## Measure
.PHONY: measure report
measure: applied build ## every run behind README and the report that has no result yet, then the report (FLAGS=--smoke: a check of them)
	@$(VENV) -m scripts.measure $(FLAGS); ended=$$?; $(VENV) -m scripts.report && exit $$ended
report: build ## render results/ into results/REPORT.md, its plots and README's figures
	@$(VENV) -m scripts.report

## Check
.PHONY: test test-gpu validate lint check-series
test: applied build ## all tests that need no GPU
	@$(VENV) -m pytest tests
test-gpu: applied build ## the tests that need a GPU
	@$(VENV) -m pytest tests --gpu -m gpu
validate: applied build ## INT4-KIVI's store bit by bit, and its readers against each other (minutes without a GPU)
	@$(VENV) -m scripts.validate_store_equiv
	@$(VENV) -m scripts.validate_paged_decode
lint: applied build ## the patch lint, ruff with vLLM's configuration, mypy on scripts/
	@$(VENV) -m scripts.lint
check-series: applied build ## each patch at its place: ruff, mypy and its tests (PATCH=, VERSION=, TESTS=all|below|none)
	@$(VENV) -m scripts.series check $(PATCH) $(if $(VERSION),--version $(VERSION)) $(if $(TESTS),--tests $(TESTS))

## Take upstream
.PHONY: check-upstream pr range-diff support
check-upstream: ## the series on another release, and what drifted there (VERSION=0.33.0)
	@$(PY) -m scripts.series check-upstream $(or $(VERSION),0.33.0)
pr: applied build ## a folder from which a person can send a patch (PATCH=0003, VERSION=)
	@$(VENV) -m scripts.series pr $(or $(PATCH),0) $(if $(VERSION),--version $(VERSION))
range-diff: ## what changed since another version of the series (OLD=<tag>)
	@$(PY) -m scripts.series range-diff "$(OLD)"
support: applied build ## write the table of what runs where into README
	@$(VENV) -m scripts.support --write
