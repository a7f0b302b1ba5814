# One command each for what people do here; `make help` lists them. The work is in tools/ and CMake.
#
#   ARGS="..."      arguments for the program (run), for ctest (test) or for the benchmarks (bench)
#   PRESET=asan     another preset of CMakePresets.json, built in build-PRESET
#   TORCH_DIR=DIR   another libtorch: a folder with include/ and lib/
#   CXX=g++         another compiler
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help setup configure build program run test check bench clean
MAKEFLAGS += --no-print-directory

PRESET ?= release
BUILD := $(if $(filter release,$(PRESET)),build,build-$(PRESET))
JOBS ?= $(shell nproc)
ARGS ?=

# ccache caches files that use a precompiled header only when it may ignore these.
export CCACHE_SLOPPINESS ?= pch_defines,time_macros,include_file_mtime,include_file_ctime

help: ## list the targets
	@sed -nE 's/^([a-z]+):.*## (.*)/  make \1\t\2/p' Makefile | expand -t 16
	@sed -nE 's/^#   (.*)/  \1/p' Makefile

setup:
	@tools/setup $(PRESET)

configure: setup
	@tools/configure $(PRESET)

build: configure ## install what is missing, configure, build the program and the tests
	@cmake --build $(BUILD) --parallel $(JOBS) >&2

program: configure ## the same without the tests
	@cmake --build $(BUILD) --parallel $(JOBS) --target orthant >&2

# Two stages, two replicas, layers cut in two: 8 ranks.
DEFAULT_RUN := train --mesh pp=2,dp=2,tp=2 --set parallel.microbatches=4

run: program ## build the program, then train the default model on 8 local ranks (or run ARGS)
	@$(BUILD)/bin/orthant $(if $(ARGS),$(ARGS),$(DEFAULT_RUN))

test: build ## build, then run every test this machine can run
	@BUILD=$(BUILD) tools/run_tests $(ARGS)

check: setup ## source rules, then tests of pure layers and operations and a parity row per axis: under 2 minutes once built
	@tools/check
	@$(MAKE) build
	@BUILD=$(BUILD) tools/run_tests -L '^(pure|check)$$'

bench: build ## build, then the side-by-side tables
	@bench/run $(ARGS)

clean: ## remove the build folders (not .venv)
	@rm -rf build build-*
