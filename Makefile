# Commands of this repository. CI runs the same ones (.ci/run).

CARGO ?= cargo

.DEFAULT_GOAL := help
.PHONY: help build dist test test-nightly lint reference doc dictionaries public-api book deny test-real check-monitoring check-deploy chart-schema protobuf-schema fuzz oracle bench bench-peers bench-real bench-read bench-million bench-isolation bench-delivery bench-fleet bench-log bench-telemetry demo ci

help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{ printf "  %-14s %s\n", $$1, $$2 }'

build: ## Build the optimised binary quickly: target/release/informer-hub
	$(CARGO) build --release --locked --package informer-hub

# Linker options that save a sixth of the size, each used if a program linked with it starts: keep one of equal functions
# (lld, the default of rustc on x86-64 Linux); pack relocations (glibc from 2.36, musl from 1.2.4).
SMALL ?= -Wl,--icf=all -Wl,-z,pack-relative-relocs
LINK_ARGS = $(shell d=$$(mktemp -d); for option in $(SMALL); do \
	echo 'fn main() {}' | rustc --crate-name probe -Clink-arg=$$option -o $$d/probe - 2>$$d/log && $$d/probe && \
	printf '%s ' -Clink-arg=$$option; done; rm -r $$d)

dist: ## Build the release binary with LTO and without symbols: target/dist/informer-hub
	$(CARGO) rustc --profile dist --locked --package informer-hub --bin informer-hub -- $(LINK_ARGS)

test: ## Run unit, simulation and documentation tests; needs only loopback, no Kubernetes
	$(CARGO) test

test-nightly: ## Run 10,000 cases per property, 1,000 simulations, a million inputs per fuzz target, 100 kills and 100 faults in a fleet; takes hours
	INFORMER_HUB_CASES=$${INFORMER_HUB_CASES:-10000} $(CARGO) test --release --workspace --lib
	SIMULATIONS=$${SIMULATIONS:-1000} $(CARGO) test --release --test simulation
	tests/testbed/build.sh
	FUZZ_RUNS=$${FUZZ_RUNS:-1000000} fuzz/run.sh
	KILLS=$${KILLS:-100} $(CARGO) test --release --test real kill::
	FAULTS=$${FAULTS:-100} $(CARGO) test --release --test real chaos:: -- --nocapture

fuzz: ## Run every fuzz target with 200,000 inputs (FUZZ_RUNS, FUZZ_SECONDS, FUZZ_TARGETS); needs a C++ compiler
	fuzz/run.sh

lint: ## Check format and clippy; warnings are errors
	$(CARGO) fmt --all -- --check
	$(CARGO) fmt --manifest-path fuzz/Cargo.toml -- --check
	$(CARGO) clippy --all-targets --all-features -- -D warnings
	$(CARGO) clippy --test real --test nats --all-features -- -D warnings

reference: ## Generate config/schema.json and docs/configuration.md from crates/config/src/schema
	$(CARGO) build --quiet
	$(CARGO) run --quiet -- config schema > config/schema.json
	$(CARGO) run --quiet -- config reference > docs/configuration.md

doc: ## Build the API documentation; warnings are errors
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --no-deps --all-features

public-api: ## Write the listing of the public API, tests/public-api.txt
	.ci/public-api --write

book: ## Build the documents as a book: target/book/index.html; needs mdbook (cargo install mdbook)
	docs/book.sh

deny: ## Check licences, bans and sources of dependencies; needs cargo-deny
	$(CARGO) deny check licenses bans sources

# The suite real waits longer than it computes, so it has more threads than cores.
test-real: ## Run the suites with real kube-apiservers and the example receivers and readers; needs Go and Python, builds for minutes the first time
	tests/testbed/build.sh
	tests/testbed/build.sh reader
	tests/testbed/build.sh kubectl
	RUST_TEST_THREADS=$${RUST_TEST_THREADS:-$$((2 * $$(getconf _NPROCESSORS_ONLN)))} $(CARGO) test --test real
	$(CARGO) test --package informer-hub-fleet --features nats --test nats
	$(CARGO) test --package informer-hub-roles --features nats --test nats
	$(CARGO) test --test receivers --test readers -- --ignored

check-monitoring: ## Check metrics, alert rules and dashboard with Prometheus' tools; needs Go, builds for minutes the first time
	$(CARGO) test --test real -- promtool new_user::queries

check-deploy: ## Check chart, overlays, image and unit with helm, kustomize, BuildKit, systemd and an apiserver; needs Go
	$(CARGO) test --test deploy
	$(CARGO) test --test real deploy::

protobuf-schema: ## Regenerate crates/protobuf/src/kubernetes.schema after an update of Kubernetes in tests/testbed/go.mod; needs Go
	$$(tests/testbed/build.sh protobuf) schema > crates/protobuf/src/kubernetes.schema

dictionaries: ## Train the built-in compression dictionaries on invented objects: crates/dictionaries/data
	UPDATE_DICTIONARIES=1 $(CARGO) test --package informer-hub-dictionaries --test generator committed

chart-schema: ## Copy config/schema.json into the schema of the chart's values, after a change of configuration keys
	UPDATE_CHART_SCHEMA=1 $(CARGO) test --test deploy chart_schema_matches_the_configuration_schema

oracle: ## Compare the hub with client-go over 50 fault schedules; needs Go, takes 10 to 15 minutes
	tests/testbed/build.sh
	INFORMER_HUB_ORACLE_SEEDS=$${INFORMER_HUB_ORACLE_SEEDS:-50} $(CARGO) test --test real oracle -- --nocapture

bench: ## Run micro benchmarks of single steps, and of the memory of cached objects
	$(CARGO) bench --bench hub -- micro
	$(CARGO) bench --bench hub -- memory

# Benchmark program for client-go.
GO_PEERS := $(abspath $(or $(CARGO_TARGET_DIR),target))/bench/peers

$(GO_PEERS): $(wildcard tests/testbed/peers/*.go) tests/testbed/go.mod
	mkdir -p $(dir $(GO_PEERS))
	cd tests/testbed && go build -trimpath -buildvcs=false -o $(GO_PEERS) ./peers

bench-peers: $(GO_PEERS) ## Compare the hub, client-go and kube-rs on the same objects: table, JSON and chart; needs Go, takes 10 minutes
	BENCH_GO_PEERS=$(GO_PEERS) BENCH_OUT=$${BENCH_OUT:-$(dir $(GO_PEERS))} $(CARGO) bench --bench hub -- peers

bench-real: $(GO_PEERS) ## Measure the first list from a real kube-apiserver, against a plain reader; needs Go, takes 10 minutes
	BENCH_GO_PEERS=$(GO_PEERS) BENCH_TESTBED=$$(tests/testbed/build.sh) $(CARGO) bench --bench hub -- real

bench-read: ## Compare lists and watches of the hub with those of a kube-apiserver, and measure queries; needs Go, takes 30 minutes
	BENCH_TESTBED=$$(tests/testbed/build.sh) BENCH_KUBECTL=$$(tests/testbed/build.sh kubectl) $(CARGO) bench --bench hub -- read

bench-million: ## Measure memory and query latency with a million objects in 100 clusters and 5,000 events a second
	$(CARGO) bench --bench hub -- million

bench-isolation: ## Measure the effect of dead, slow, flooding or invalid clusters and sinks on others; takes 10 minutes
	$(CARGO) bench --bench hub -- isolation

bench-log: ## Compare the log of changes with bare NATS JetStream; needs Go, takes a minute
	BENCH_NATS=$$(tests/testbed/nats/build.sh) $(CARGO) bench --package informer-hub-fleet --features nats --bench log

bench-fleet: ## Measure events through the log of a fleet with 1 and 10 replicas, beside a hub alone; needs Go, takes 5 minutes
	BENCH_NATS=$$(tests/testbed/nats/build.sh) $(CARGO) bench --bench hub -- replicas

bench-telemetry: ## Measure the cost of traces and metrics; needs taskset, takes 4 minutes
	$(CARGO) bench --bench hub -- telemetry

bench-delivery: ## Measure cost and latency of journalled delivery for each hub.fsync; needs taskset, takes 10 minutes
	$(CARGO) bench --bench hub -- delivery

demo: ## Run the hub with three simulated clusters under churn; needs no Kubernetes
	$(CARGO) run --release -- demo

ci: ## Run all CI checks
	./.ci/run
