# The one place for the commands of this repository; CI runs the same ones (.ci/run).

CARGO ?= cargo

.DEFAULT_GOAL := help
.PHONY: help build dist test test-nightly lint reference doc book deny test-real check-monitoring check-deploy chart-schema fuzz oracle bench bench-peers bench-real bench-million bench-isolation bench-delivery bench-telemetry demo ci

help: ## What there is to run
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{ printf "  %-14s %s\n", $$1, $$2 }'

build: ## The binary, optimised, quick to build: target/release/informer-hub
	$(CARGO) build --release --locked

dist: ## The binary that is shipped, with LTO and without symbols: target/dist/informer-hub
	$(CARGO) build --profile dist --locked

test: ## Unit, simulation and documentation tests; no network beyond loopback, no Kubernetes
	$(CARGO) test

test-nightly: ## Every property with 10,000 random cases, a thousand simulations, a million inputs a fuzz target, a hundred kills; takes long
	INFORMER_HUB_CASES=$${INFORMER_HUB_CASES:-10000} $(CARGO) test --release --workspace --lib
	SIMULATIONS=$${SIMULATIONS:-1000} $(CARGO) test --release --test simulation
	tests/testbed/build.sh
	FUZZ_RUNS=$${FUZZ_RUNS:-1000000} fuzz/run.sh
	KILLS=$${KILLS:-100} $(CARGO) test --release --features real-tests --test real kill::

fuzz: ## Every fuzz target, 200,000 inputs each (FUZZ_RUNS, FUZZ_SECONDS, FUZZ_TARGETS); needs a C++ compiler
	fuzz/run.sh

lint: ## Format and clippy, warnings are errors
	$(CARGO) fmt --all -- --check
	$(CARGO) fmt --manifest-path fuzz/Cargo.toml -- --check
	$(CARGO) clippy --all-targets --all-features -- -D warnings

reference: ## config/schema.json and docs/configuration.md anew, from the definitions in crates/config/src/schema
	$(CARGO) build --quiet
	$(CARGO) run --quiet -- config schema > config/schema.json
	$(CARGO) run --quiet -- config reference > docs/configuration.md

doc: ## The API documentation, warnings are errors
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --no-deps --all-features

book: ## The book of these documents: target/book/index.html; needs mdbook (cargo install mdbook)
	docs/book.sh

deny: ## Licences, bans and sources of dependencies; needs cargo-deny
	$(CARGO) deny check licenses bans sources

test-real: ## The suite against real kube-apiservers on loopback, and receivers of webhooks; needs Go and Python, minutes the first time
	tests/testbed/build.sh
	$(CARGO) test --features real-tests --test real --test receivers

check-monitoring: ## Metrics, alert rules, dashboard and their tests before Prometheus' own tools; needs Go, minutes the first time
	$(CARGO) test --features real-tests --test real -- promtool newcomer::queries

check-deploy: ## Chart, overlays, image and unit before helm, kustomize, BuildKit's rules, systemd and an apiserver; needs Go
	$(CARGO) test --test deploy
	$(CARGO) test --features real-tests --test real deploy::

chart-schema: ## Writes config/schema.json into the schema of the chart's values, after a change of the configuration's keys
	UPDATE_CHART_SCHEMA=1 $(CARGO) test --test deploy the_chart_knows_the_configuration

oracle: ## The hub against client-go itself, fifty schedules of faults; needs Go, takes ten to fifteen minutes
	tests/testbed/build.sh
	INFORMER_HUB_ORACLE_SEEDS=$${INFORMER_HUB_ORACLE_SEEDS:-50} $(CARGO) test --features real-tests --test real oracle -- --nocapture

bench: ## Micro benches of single steps, and where the bytes of a cached object are
	$(CARGO) bench --bench hub -- micro
	$(CARGO) bench --bench hub -- memory

# The Go program that is client-go's side.
GO_PEERS := $(abspath $(or $(CARGO_TARGET_DIR),target))/bench/peers

$(GO_PEERS): $(wildcard tests/testbed/peers/*.go) tests/testbed/go.mod
	mkdir -p $(dir $(GO_PEERS))
	cd tests/testbed && go build -trimpath -buildvcs=false -o $(GO_PEERS) ./peers

bench-peers: $(GO_PEERS) ## The hub, client-go and kube-rs on the same objects: table, JSON and chart; needs Go, ten minutes
	BENCH_GO_PEERS=$(GO_PEERS) BENCH_OUT=$${BENCH_OUT:-$(dir $(GO_PEERS))} $(CARGO) bench --bench hub -- peers

bench-real: $(GO_PEERS) ## The first list from a real kube-apiserver, beside a reader that keeps nothing; needs Go, ten minutes
	BENCH_GO_PEERS=$(GO_PEERS) BENCH_TESTBED=$$(tests/testbed/build.sh) $(CARGO) bench --bench hub -- real

bench-million: ## A million objects in 100 clusters: memory, and questions while 5,000 events a second arrive
	$(CARGO) bench --bench hub -- million

bench-isolation: ## What clusters and sinks feel of others that are dead, drip, flood or send garbage; ten minutes
	$(CARGO) bench --bench hub -- isolation

bench-telemetry: ## What traces and metrics cost, beside the same without them; wants taskset; four minutes
	$(CARGO) bench --bench hub -- telemetry

bench-delivery: ## What journalled delivery costs, and how long it takes, for each hub.fsync; wants taskset; ten minutes
	$(CARGO) bench --bench hub -- delivery

demo: ## Three simulated clusters with churn, no Kubernetes needed
	$(CARGO) run --release -- demo

ci: ## Everything that CI checks
	./.ci/run
