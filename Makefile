# Everything here runs on a plain Debian 12 with make and git; what is missing
# is installed by scripts/setup. Caches live outside the clone.

SSZIP_CACHE ?= $(HOME)/.cache/sszip
CARGO_TARGET_DIR := $(SSZIP_CACHE)/target
# Counts, JUnit files, and the logs of servers whose tests failed.
SSZIP_REPORTS ?= $(SSZIP_CACHE)/reports
export SSZIP_CACHE CARGO_TARGET_DIR SSZIP_REPORTS
# A registry that stumbles is asked again, for longer than cargo's three times.
export CARGO_NET_RETRY ?= 10

# Past a cargo that is too old, to the one scripts/setup installs.
export PATH := $(shell bash -c '. scripts/lib.sh; echo "$$PATH"')

MODULE := ngx_http_sszip_module.so
PYTHON := $(SSZIP_CACHE)/venv/bin/python
NGINX_128 := $(SSZIP_CACHE)/nginx-1.28
NGINX_ASAN := $(SSZIP_CACHE)/nginx-1.28-asan

.DEFAULT_GOAL := help
# cargo, pytest and nginx's make each use all cores.
.NOTPARALLEL:
.PHONY: help setup build run test check unit ssz e2e fuzz races bench compare scale clean \
	e2e-owner e2e-envoy e2e-debian e2e-1.28 e2e-asan e2e-docker docker-test faults \
	examples ssz-peers \
	nginx-tests nginx-tests-there

help: ## what can be made (this list)
	@sed -n 's/^\([a-z][a-z0-9.-]*\):[^#]*## /\1\t/p' Makefile | expand -t 14

setup: ## installs all that `make test` needs (the others install on their own)
	@scripts/setup test

build: ## modules of nginx and Envoy, Wasm, the cache's owner, sszip and replay-node, in build/
	@scripts/setup build
	cargo build --release --package sszip-core --features ffi
	cargo build --release --package sszip-owner
	cargo build --release --package sszip-cli
	cargo build --release --package replay-node
	cargo build --release --package sszip-envoy
	@scripts/build-nginx-module debian
	@install -D -m 644 "$$(scripts/build-wasm sszip-envoy-wasm sandbox)" \
		build/envoy/sszip_envoy.wasm
	@install -D -t build/envoy "$(CARGO_TARGET_DIR)/release/libsszip_envoy.so" \
		"$(CARGO_TARGET_DIR)/release/libsszip_owner.so"
	@install -D -t build/bin "$(CARGO_TARGET_DIR)/release/replay-node" \
		"$(CARGO_TARGET_DIR)/release/sszip-cached" \
		"$(CARGO_TARGET_DIR)/release/sszip"

run: build ## nginx (8545) and Envoy (8546) with sszip before a replay node; Ctrl-C stops
	@scripts/setup run
	@scripts/run

test: setup ## all checks and tests; a summary at the end
	@$(PYTHON) scripts/run-tests

check: setup ## format, lints, C style, dependencies' licences
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets --all-features -- -D warnings
	cargo fmt --check --manifest-path shared-core/fuzz/Cargo.toml
	cargo clippy --locked --manifest-path shared-core/fuzz/Cargo.toml -- -D warnings
	cargo fmt --check --manifest-path loadtest/ssz-peers/Cargo.toml
	cargo clippy --locked --manifest-path loadtest/ssz-peers/Cargo.toml \
		--all-targets -- -D warnings
	@scripts/check-wasm
	$(SSZIP_CACHE)/tools/bin/cargo-deny --all-features check bans licenses sources
	$(PYTHON) -m unittest discover -q -s scripts/tests
	$(PYTHON) scripts/nginx-style nginx-module/src
	shellcheck --external-sources \
		$$(git grep -lE '^#!.*[/ ](ba)?sh$$') scripts/lib.sh
	$(SSZIP_CACHE)/venv/bin/ruff check --config scripts/ruff.toml \
		tests loadtest scripts/tests scripts/nginx-style scripts/beacon-operations

unit: setup ## the Rust tests, the C ABI's among them
	$(PYTHON) scripts/run-cargo-tests unit --workspace --all-features $(ARGS)

ssz: setup ssz-peers examples ## SSZ against the specifications, Lodestar and typed crates
	SSZIP_SSZ_ORACLE=$(CARGO_TARGET_DIR)/release/examples/ssz_oracle \
	SSZIP_LODESTAR=$(SSZIP_CACHE)/lodestar \
	$(SSZIP_CACHE)/ssz-venv/bin/python scripts/run-pytest ssz -q $(ARGS) tests/ssz

ssz-peers: setup ## ... SSZ beside typed crates only
	cargo test --locked --manifest-path loadtest/ssz-peers/Cargo.toml

e2e: e2e-owner e2e-envoy e2e-debian e2e-1.28 e2e-asan e2e-docker ## the owner; Envoy; nginx: 1.22, 1.28, 1.28 with ASan; docker

# $(call pytest,NGINX,MODULE,FLAVOUR,MARKS,STAGE): tests/README.md says which run where
pytest = SSZIP_NGINX=$(1) SSZIP_MODULE=$(2) \
	SSZIP_MODULE_FAULTS=$(SSZIP_CACHE)/module/$(3)-faults/$(MODULE) \
	SSZIP_REPLAY_NODE=$(CURDIR)/build/bin/replay-node \
	SSZIP_SPLICES=$(CARGO_TARGET_DIR)/release/examples/splices \
	$(PYTHON) scripts/run-pytest $(5) $(if $(4),-m $(4)) $(ARGS) tests/e2e

e2e-owner: setup build ## ... the cache's owner only
	SSZIP_CACHED=$(CURDIR)/build/bin/sszip-cached \
	SSZIP_OWNER_LIBRARY=$(CURDIR)/build/nginx/libsszip_owner.so \
	$(PYTHON) scripts/run-pytest e2e-owner $(ARGS) tests/owner

e2e-envoy: setup build ## ... Envoy only
	SSZIP_ENVOY=$$(echo $(SSZIP_CACHE)/envoy/lib/python3*/site-packages/envoy/_bin/envoy) \
	SSZIP_ENVOY_MODULE=$(CURDIR)/build/envoy/libsszip_envoy.so \
	SSZIP_WASM=$(CURDIR)/build/envoy/sszip_envoy.wasm \
	SSZIP_OWNER_LIBRARY=$(CURDIR)/build/envoy/libsszip_owner.so \
	SSZIP_CACHED=$(CURDIR)/build/bin/sszip-cached \
	SSZIP_MODULE=$(CURDIR)/build/nginx/ngx_http_sszip_module.so \
	SSZIP_REPLAY_NODE=$(CURDIR)/build/bin/replay-node \
	$(PYTHON) scripts/run-pytest e2e-envoy $(ARGS) tests/envoy

e2e-debian: setup build faults examples ## ... Debian's nginx only
	@scripts/build-nginx-module debian --faults
	$(call pytest,/usr/sbin/nginx,$(CURDIR)/build/nginx/$(MODULE),debian,,e2e-debian)

e2e-1.28: setup build faults examples ## ... nginx 1.28 only
	@scripts/build-nginx-1.28
	@scripts/build-nginx-module 1.28
	@scripts/build-nginx-module 1.28 --faults
	$(call pytest,$(NGINX_128)/sbin/nginx,$(NGINX_128)/$(MODULE),1.28,'bare and not once and not carried',e2e-1.28)

e2e-asan: setup build faults examples ## ... nginx 1.28 with AddressSanitizer only
	@scripts/build-nginx-1.28 --asan
	@scripts/build-nginx-module 1.28-asan
	@scripts/build-nginx-module 1.28-asan --faults
	SSZIP_NGINX_ASAN=1 $(call pytest,$(NGINX_ASAN)/sbin/nginx,$(NGINX_ASAN)/$(MODULE),1.28-asan,'not once',e2e-asan)

e2e-docker: setup build ## ... the stack in Docker only, of build/; where an engine can be started
	@scripts/setup docker
	@scripts/docker-test --prebuilt --if-possible

docker-test: ## builds the images of docker/ from source, runs the stack, kills and upgrades it
	@scripts/setup docker
	@scripts/docker-test

# The core that panics and fails when a test says so.
faults: setup
	cargo build --release --package sszip-core --features ffi,faults \
		--target-dir "$(CARGO_TARGET_DIR)/faults"

# Programs over the core that tests run, made in one go: an example has
# features of its own, for which the core is compiled once more.
examples: setup
	cargo build --release --package sszip-core --features ffi \
		--example splices --example ssz_oracle

# Not of `make test`: the suite has no release that a set-up could install.
NGINX := /usr/sbin/nginx
NGINX_MODULE := $(CURDIR)/build/nginx/$(MODULE)

nginx-tests: nginx-tests-there setup build ## nginx's own tests with sszip on; NGINX_TESTS=a clone of them
	$(PYTHON) tests/foreign/nginx-tests/run.py --suite "$(NGINX_TESTS)" \
		--nginx "$(NGINX)" --module "$(NGINX_MODULE)"

nginx-tests-there:
	@test -f "$(NGINX_TESTS)/lib/Test/Nginx.pm" || { echo >&2 \
		"make nginx-tests NGINX_TESTS=FOLDER: a clone of https://github.com/nginx/nginx-tests," \
		"at a commit of about the age of $(NGINX)"; exit 2; }

fuzz: setup ## libFuzzer on the core and Envoy's hooks, FUZZ_SECONDS (10) for each target
	@scripts/fuzz

races: ## races of Envoy's hooks, under ThreadSanitizer (compiles std; by hand)
	@scripts/check-races

bench: build ## sszip beside its rivals; tables go to loadtest/results/
	@scripts/setup bench
	loadtest/bench/run

compare: build ## nginx and Envoy with sszip beside other servers, in one run (35 minutes)
	@scripts/setup compare
	loadtest/compare/run

scale: build ## workers, connections, keys, a store of STORE_GB (16), and a model (20 minutes)
	@scripts/setup bench
	loadtest/compare/scale --store-gb $(or $(STORE_GB),16)

clean: ## removes build/ and what was compiled into the caches
	rm -rf build "$(CARGO_TARGET_DIR)" "$(SSZIP_CACHE)/module" \
		"$(NGINX_128)" "$(NGINX_ASAN)"
