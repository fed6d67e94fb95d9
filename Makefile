# The doors of the house: `make help` lists them. Each does all of its own set-up.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

# Compiler output is shared by all checkouts of this machine, so that a fresh clone builds fast.
CARGO_TARGET_DIR ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/heliograph/target
override CARGO_TARGET_DIR := $(abspath $(CARGO_TARGET_DIR))
export CARGO_TARGET_DIR

PYTHON ?= python3
ARGS ?=
PREFIX ?= $(CARGO_TARGET_DIR)/c
venv := .venv
bin := $(CURDIR)/$(venv)/bin

conformance_page := cargo run --quiet --locked --package helio-bus --example conformance -- \
  --page docs/conformance.md --results docs/conformance
bench_python := bench/run bench/report bench/figures.py bench/python_speed.py bench/alerts_speed.py bench/alerts_rows.py bench/alerts_report bench/state_report bench/page.py bench/confluent_speed.py bench/rsyslog_speed.py bench/otlp_speed.py bench/feed.py \
  bench/tests
engines_python := tests/engines tests/engines/kafka tests/engines/apicurio tests/engines/kube \
  crates/transports/dds/tests/others crates/services/log-otlp/tests/others crates/services/alerts/tests/others crates/alerts-cli/tests/others crates/core/tests/golden/cdr \
  crates/filter/tests/oracle

# What the Python extension is built from.
package_sources := Cargo.toml Cargo.lock \
  $(shell find python crates/core crates/journal crates/bus crates/transports crates/services -name tests -prune -o -type f \
    \( -name '*.rs' -o -name '*.toml' -o -name '*.py' -o -name '*.pyi' \) -print)

.PHONY: help demo test test-rust test-python test-engines soak conformance bench lint docs build python package-dev c clean

help: ## Say what each door does.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# Without Kafka, DDS and what else the demo does not need, in a folder beside `make build`'s program.
demo: $(venv)/.compiler ## A small observatory in separate processes; ARGS='…' go to `helio demo`.
	cargo build --locked --profile demo --package helio-cli --no-default-features
	$(CARGO_TARGET_DIR)/demo/helio demo $(ARGS)

test: test-rust test-python test-engines ## The fast tests: Rust, its documentation's examples, Python.

# The tools are for others at the other end: Eclipse Cyclone's Python package for DDS, OpenTelemetry's.
test-rust: $(venv)/.tools
	cargo test --locked --workspace

test-python: package-dev
	$(bin)/pytest -q bench scripts
	$(bin)/pytest --config-file python/pyproject.toml python/tests

# Those that need Java are skipped without it, and say so. The soak runs the others.
test-engines: $(venv)/.tools
	cd tests/engines && $(bin)/pytest -q -rs

# `scripts/soak --help` lists the options, such as ARGS='--only kafka/conformance'.
soak: package-dev ## The tests that take long, kill, or need real engines: 100 minutes at most; ARGS='…'.
	scripts/soak $(ARGS)

conformance: $(venv)/.rust ## Holds every transport to the suite; keeps the results, and docs/conformance.md.
	HELIO_CONFORMANCE_KEEP=1 cargo test --locked --workspace --test it --test soak -- conformance::
	$(conformance_page)

bench: build python ## The benches of bench/cases, appended to bench/results; ARGS='…' go to bench/run.
	$(bin)/python bench/run --helio $(CARGO_TARGET_DIR)/release/helio $(ARGS)

lint: $(venv)/.tools ## Format, warnings, types, layers, style limits, links.
	cargo fmt --all --check
	cargo fmt --check --manifest-path bench/compare/Cargo.toml
	cargo fmt --check --manifest-path fuzz/Cargo.toml
	cargo clippy --locked --workspace --all-targets -- --deny warnings
	cargo clippy --locked --workspace --test soak -- --deny warnings
	cargo clippy --locked --manifest-path fuzz/Cargo.toml --all-targets -- --deny warnings
	cargo xtask tidy
	RUSTDOCFLAGS='--deny warnings' cargo doc --quiet --locked --workspace --no-deps
	$(bin)/ruff check python scripts scripts/soak $(bench_python) $(engines_python)
	$(bin)/ruff format --check python scripts scripts/soak $(bench_python) $(engines_python)
	cd python && $(bin)/mypy
	cd bench && $(bin)/mypy --strict --scripts-are-modules run report alerts_report state_report page.py figures.py alerts_rows.py rsyslog_speed.py otlp_speed.py
	cd scripts && $(bin)/mypy --strict --scripts-are-modules soak reach.py
	cd tests/engines && $(bin)/mypy --strict --scripts-are-modules kafka apicurio kube lib

docs: $(venv)/.rust ## Rust reference in the target folder, with links checked, and the books of docs/.
	RUSTDOCFLAGS='--deny warnings' cargo doc --quiet --locked --workspace --no-deps
	cargo xtask links
	$(conformance_page) --check
	bench/report --check docs/benchmarks.md
	bench/alerts_report --check docs/alerts-benchmarks.md
	bench/state_report --check docs/state-benchmarks.md
	@echo "Rust reference: $(CARGO_TARGET_DIR)/doc/helio_bus/index.html; the rest: docs/README.md"

build: $(venv)/.rust ## The programs `helio` and `helio-alerts`, optimised.
	cargo build --locked --release --package helio-cli --package helio-alerts-cli
	@echo "Built $(CARGO_TARGET_DIR)/release/helio and helio-alerts beside it"

# For tests: the dev profile. Cargo knows what is out of date.
package-dev: $(venv)/.tools
	scripts/setup package-dev $(venv)

python: $(venv)/.package ## The Python package, in a virtual environment of its own (.venv).

c: $(venv)/.rust ## The library for logging from C and C++, its header and pkg-config file, in PREFIX.
	cargo build --locked --release --package helio-log-c $(ARGS)
	install -D -m 644 -t $(PREFIX)/include crates/services/log-c/include/helio_log.h
	install -D -m 644 -t $(PREFIX)/lib $(CARGO_TARGET_DIR)/release/libhelio_log.{a,so}
	mkdir -p $(PREFIX)/lib/pkgconfig
	sed 's|@prefix@|$(abspath $(PREFIX))|' crates/services/log-c/helio-log.pc.in >$(PREFIX)/lib/pkgconfig/helio-log.pc
	@echo "pkg-config --cflags --libs helio-log, with PKG_CONFIG_PATH=$(abspath $(PREFIX))/lib/pkgconfig"

clean: ## Remove the virtual environment; the compiler's output is left to `cargo clean`.
	rm -rf $(venv)

$(venv)/.compiler: scripts/setup
	scripts/setup compiler $(venv)

$(venv)/.rust: scripts/setup
	scripts/setup rust $(venv)

$(venv)/.tools: scripts/setup scripts/requirements.txt | $(venv)/.rust
	PYTHON=$(PYTHON) scripts/setup tools $(venv)

$(venv)/.package: $(venv)/.tools $(package_sources)
	scripts/setup package $(venv)
