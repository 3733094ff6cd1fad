# The verbs of this project. `make` alone lists them.
.DEFAULT_GOAL := help
STOREBENCH := target/release/storebench
# What `make demo` builds: what it runs. .ci/run has built the whole workspace; another choice of packages would be another choice
# of their dependencies' features, and hence minutes of building the same again.
DEMO_PACKAGES ?= -p storebench -p rusd

SEEDS ?= 10000
MEMBER_SEEDS ?= 1000
SECONDS_EACH ?= 60
# Each takes four minutes at most where nothing stands still: what does is named, and does not take the time of all the others.
LIMITED := timeout --verbose 12m
# What takes a processor, and no program of ours; and what waits for our stores most of the time, the longest first.
CONFORMANCE_RULES := api-rules gitops release linearizability
CONFORMANCE_STORES := etcd-suite d-engine etcd-durability-3 etcd-durability block-node block-node-java

help: ## list the verbs
	@grep -E '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

$(STOREBENCH): FORCE
	cargo build --release --workspace --bins

demo: ## a quarter of an hour, ten minutes of which are building: compare real stores on this machine, end with a report
	testing/demo $(DEMO_PACKAGES)

# Most tests wait for processes and for disks: two at a time on each core. .config/nextest.toml names those that need a machine alone.
test: test-documentation test-programs ## every test that needs no cluster (fetches the peers and cargo-nextest)
test-documentation:
	cargo test --quiet --release --workspace --doc
test-programs:
	peers/fetch
	command -v cargo-nextest >/dev/null || .ci/install-cargo-tool nextest
	NEXTEST_TEST_THREADS=$${NEXTEST_TEST_THREADS:-$$((2 * $$(nproc)))} cargo nextest run --release --workspace

lint: ## formatting, clippy, fuzz targets, dashboards, licences and duplicates
	grafana/generate --check && python3 testing/grafana/check.py files
	cargo fmt --all --check
	cargo fmt --check --manifest-path peers/d-engine-original/0.2.4/Cargo.toml
	cargo clippy --release --workspace --all-targets --features fuzz/targets,walsync/clouds -- -D warnings
	cargo deny --all-features check bans licenses sources

unsafe: ## the one crate with unsafe code, under Valgrind (needs valgrind; services/rsedis/README.md says how with a sanitizer or Miri)
	cargo --config 'target."cfg(all())".runner = ["valgrind", "-q", "--error-exitcode=1", "--leak-check=full", "--show-leak-kinds=definite", "--errors-for-leak-kinds=definite"]' test --release -p thin

peers: ## fetch every peer store and tool, without root
	peers/fetch

# With -j2 in half the time; -O keeps what each prints together.
conformance: conformance-rules conformance-stores ## what other people's rules and tools say of us: Kubernetes' validation, GitOps tools, etcd's client (-j2 -O)
conformance-rules: $(CONFORMANCE_RULES:%=conformance-%)
conformance-stores: $(CONFORMANCE_STORES:%=conformance-%)
# What Go's compiler does may as well be done beside something that waits.
etcd-suite-compiled:
	testing/etcd-suite/test compile
conformance-api-rules conformance-gitops conformance-linearizability: conformance-%:
	$(LIMITED) testing/$*/test
conformance-release:
	$(LIMITED) release/check
conformance-block-node conformance-block-node-java: conformance-%: $(STOREBENCH)
	$(LIMITED) testing/$(subst -java,/java,$*)/test
conformance-d-engine: $(STOREBENCH)
	$(LIMITED) testing/d-engine/test 8
conformance-etcd-durability: $(STOREBENCH)
	$(LIMITED) testing/etcd-durability/test 20 target/release/rusd
conformance-etcd-durability-3: $(STOREBENCH)
	$(LIMITED) testing/etcd-durability/test 10 target/release/rusd 3
conformance-etcd-suite: $(STOREBENCH)
	$(LIMITED) testing/etcd-suite/test target/release/rusd

generate: ## what is generated from the types and checked in: YAML of the CRDs, reference, schema of results, recorded statuses
	UPDATE_CRDS=1 UPDATE_SCHEMA=1 UPDATE_STATUSES=1 cargo test --release --workspace --test drift --test schema --test statuses

simulate: ## 10,000 seeds of bad days for the replicated log, 1,000 for d-engine's members; SEEDS=..., MEMBER_SEEDS=... for more
	cargo run --quiet --release --bin replog-sim --features replog/simulator -- --seeds $(SEEDS)
	REPLICAS_SEEDS=$(MEMBER_SEEDS) cargo test --quiet --release --workspace --test replicas members_stay -- --nocapture

fuzz: ## every decoder for a minute (needs cargo-fuzz; fuzz/README.md)
	cd fuzz && for target in $$(cargo fuzz list); do \
	  cargo fuzz run --features run --sanitizer none $$target -- -max_total_time=$(SECONDS_EACH) -rss_limit_mb=2048 -print_final_stats=0 || exit 1; \
	done

bench: $(STOREBENCH) ## the loader against the peers' own benchmark tools, and the A/A and A/B rates (long)
	bench-jobs/compare etcd
	bench-jobs/compare redis
	testing/verdict-rates

e2e: $(STOREBENCH) ## the operator on a real Kind cluster: the short path
	testing/cluster/e2e

e2e-full: export STOREBENCH_PROFILE = published
e2e-full: ## the short path, every fault that a cluster can throw at a run, every panel of the dashboards (long)
	testing/cluster/e2e --keep
	testing/cluster/interruptions
	testing/cluster/admission
	testing/cluster/shapes
	testing/cluster/faults
	testing/cluster/control-planes
	testing/cluster/policies
	testing/cluster/dashboards
	testing/cluster/services
	testing/cluster/quiet
	testing/cluster/agreement
	kind/down --name storebench-e2e

release: ## what a release consists of, up to the push: programs, images, chart, plugin (long; release/README.md)
	release/build

.PHONY: help demo test test-documentation test-programs unsafe lint generate peers release conformance conformance-rules conformance-stores etcd-suite-compiled $(CONFORMANCE_RULES:%=conformance-%) $(CONFORMANCE_STORES:%=conformance-%) simulate fuzz bench e2e e2e-full FORCE
FORCE:
