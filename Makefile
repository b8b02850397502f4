# Everything here runs on a plain Debian 12 with make and git; what is missing
# is installed by scripts/setup. Caches live outside the clone.

SSZIP_CACHE ?= $(HOME)/.cache/sszip
CARGO_TARGET_DIR := $(SSZIP_CACHE)/target
# Counts, JUnit files, and the logs of servers whose tests failed.
SSZIP_REPORTS ?= $(SSZIP_CACHE)/reports
export SSZIP_CACHE CARGO_TARGET_DIR SSZIP_REPORTS
# Each worker of pytest would compile all tests again, and their asserts; outside the clone.
export PYTHONPYCACHEPREFIX := $(SSZIP_CACHE)/pycache
unexport PYTHONDONTWRITEBYTECODE
# A registry that stumbles is asked again, for longer than cargo's three times.
export CARGO_NET_RETRY ?= 10

# Past a cargo that is too old, to the one scripts/setup installs.
export PATH := $(shell bash -c '. scripts/lib.sh; echo "$$PATH"')

MODULE := ngx_http_sszip_module.so
PYTHON := $(SSZIP_CACHE)/venv/bin/python
NGINX_128 := $(SSZIP_CACHE)/nginx-1.28
NGINX_ASAN := $(SSZIP_CACHE)/nginx-1.28-asan

# What the tests run; with SHIPPED=1 Envoy's and Debian's run what `make build` makes.
TESTED := $(SSZIP_CACHE)/tested
BIN := $(if $(SHIPPED),$(CURDIR)/build/bin,$(TESTED)/bin)
ENVOY := $(if $(SHIPPED),$(CURDIR)/build/envoy,$(TESTED)/envoy)
export SSZIP_SHIPPED := $(SHIPPED)
export SSZIP_NGINX ?= /usr/sbin/nginx
export SSZIP_MODULE ?= $(if $(SHIPPED),$(CURDIR)/build/nginx,$(TESTED)/nginx-debian)/$(MODULE)
export SSZIP_MODULE_FAULTS ?= $(TESTED)/nginx-debian/$(MODULE)
export SSZIP_ENVOY = $(shell echo $(SSZIP_CACHE)/envoy/lib/python3*/site-packages/envoy/_bin/envoy)
export SSZIP_ENVOY_MODULE := $(ENVOY)/libsszip_envoy.so
export SSZIP_WASM := $(ENVOY)/sszip_envoy.wasm
export SSZIP_OWNER_LIBRARY := $(ENVOY)/libsszip_owner.so
export SSZIP_COMMAND := $(BIN)/sszip
export SSZIP_CACHED := $(BIN)/sszip-cached
export SSZIP_REPLAY_NODE := $(BIN)/replay-node
export SSZIP_SPLICES := $(CARGO_TARGET_DIR)/debug/splices
export SSZIP_SSZ_ORACLE := $(CARGO_TARGET_DIR)/debug/ssz_oracle
export SSZIP_LODESTAR := $(SSZIP_CACHE)/lodestar

# $(call all,FOLDER): the folder, unless ARGS names files.
all = $(if $(findstring tests/,$(ARGS)),,$(1))

.DEFAULT_GOAL := help
# cargo, pytest and nginx's make each use all cores.
.NOTPARALLEL:
.PHONY: help setup build run quick test test-all lint check unit ssz e2e fuzz races bench compare scale clean \
	e2e-owner e2e-envoy e2e-debian e2e-1.28 e2e-asan e2e-docker e2e-packages docker-test \
	deb deb-test release \
	tested tested-crates ssz-peers rows row rows-shipped e2e-shipped \
	nginx-tests nginx-tests-there

help: ## lists the targets
	@sed -n 's/^\([a-z][a-z0-9.-]*\):[^#]*## /\1\t/p' Makefile | expand -t 14

# What `scripts/setup` installs. The targets of the second line need none of the clients that tests of
# `make test-all` start, which are compiled for minutes on a new machine.
GROUP := test-all
quick test unit rows row: GROUP := test

setup: ## installs the prerequisites of all tests (other targets install their own)
	@test -n "$(SSZIP_IS_SET_UP)" || scripts/setup $(GROUP)
	@scripts/claim-target

build: ## modules of nginx and Envoy, Wasm, the cache's owner, sszip and replay-node, in build/
	@scripts/setup build
	@scripts/claim-target
	@scripts/build-shipped

run: build ## nginx (8545) and Envoy (8546) with sszip before a replay node; Ctrl-C stops
	@scripts/setup run
	@scripts/run

quick: setup ## lints, Rust tests, the parity table on nginx and Envoy: 7 minutes
	@$(PYTHON) scripts/run-tests quick

test: setup ## required before a merge: 14 minutes when everything is compiled
	@$(PYTHON) scripts/run-tests test

test-all: setup ## required before a release: all tests with new seeds, Docker, the shipped build
	@$(PYTHON) scripts/run-tests all

lint: setup ## format, lints, C style
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets --all-features -- -D warnings
	$(PYTHON) -m unittest discover -q -s scripts/tests
	$(PYTHON) scripts/nginx-style nginx-module/src
	$(PYTHON) scripts/check-words
	shellcheck --external-sources \
		$$(git grep -lE '^#!.*[/ ](ba)?sh$$') scripts/lib.sh
	$(SSZIP_CACHE)/venv/bin/ruff check --config scripts/ruff.toml \
		tests loadtest scripts/tests scripts/nginx-style scripts/beacon-operations scripts/check-words scripts/compare-layouts scripts/decisions

# Crates outside the workspace. Clippy compiles the dependencies of each again, and cargo-deny is compiled
# first, for minutes on a new machine: not in `make test`, but in `make test-all` and in `make check` by hand.
OUTER_CRATES := shared-core/fuzz loadtest/ssz-peers tests/clients/reqwest

check: lint ## lint, WebAssembly, fuzz targets, dependencies' licences
	@for crate in $(OUTER_CRATES); do \
		cargo fmt --check --manifest-path $$crate/Cargo.toml || exit; \
	done
	$(if $(filter test,$(SSZIP_TIER)),,@for crate in $(OUTER_CRATES); do \
		cargo clippy --locked --manifest-path $$crate/Cargo.toml --all-targets -- -D warnings || exit; \
	done)
	@scripts/check-wasm
	$(if $(filter test,$(SSZIP_TIER)),,$(SSZIP_CACHE)/tools/bin/cargo-deny --all-features check bans licenses sources)

# Once for the hosts, the programs and the Rust tests, with all features of the core.
CRATES := --locked --workspace --exclude sszip-envoy-wasm --exclude sszip-sandbox \
	--features sszip-core/ffi,sszip-core/store,sszip-core/faults

tested-crates: setup
	cargo build $(CRATES) --lib --bins

tested: tested-crates ## builds for the tests: compiled quickly, with fault injection
	@scripts/build-nginx-module debian --tested
	@install -C -D -m 644 "$$(scripts/build-wasm sszip-envoy-wasm sandbox-tested)" \
		$(TESTED)/envoy/sszip_envoy.wasm
	@install -C -D -t $(TESTED)/envoy "$(CARGO_TARGET_DIR)/debug/libsszip_envoy.so" \
		"$(CARGO_TARGET_DIR)/debug/libsszip_owner.so"
	@install -C -D -t $(TESTED)/bin "$(CARGO_TARGET_DIR)/debug/replay-node" \
		"$(CARGO_TARGET_DIR)/debug/sszip-cached" "$(CARGO_TARGET_DIR)/debug/sszip"

unit: tested-crates ## the Rust tests, the C ABI's among them
	$(PYTHON) scripts/run-cargo-tests unit $(CRATES) $(ARGS)

ssz: tested-crates ssz-peers ## SSZ against the specifications, Lodestar and typed crates
	$(SSZIP_CACHE)/ssz-venv/bin/python scripts/run-pytest ssz -q $(ARGS) $(call all,tests/ssz)

ssz-peers: setup ## ... SSZ next to typed crates only
	cargo test --locked --manifest-path loadtest/ssz-peers/Cargo.toml

# tests/README.md says which test runs where. Of `make test`, each test of nginx runs on one of the
# two: on 1.28 with the sanitizer, or, where a mark says that nginx's version makes no difference,
# on the distribution's.
ONE_NGINX := $(filter quick test,$(SSZIP_TIER))
e2e: e2e-owner e2e-envoy e2e-debian e2e-1.28 e2e-asan e2e-docker ## the owner; Envoy; nginx: 1.22, 1.28, 1.28 with ASan; docker

e2e-owner: tested ## ... the cache's owner only, and machines that share a fleet
	$(PYTHON) scripts/run-pytest e2e-owner $(ARGS) $(call all,tests/owner tests/fleet)

e2e-envoy: tested ## ... Envoy only
	SSZIP_HOSTS="native wasm" $(PYTHON) scripts/run-pytest e2e-envoy $(ARGS) $(call all,tests/envoy tests/hosts)

e2e-debian: tested ## ... Debian's nginx only
	SSZIP_HOSTS=nginx $(PYTHON) scripts/run-pytest e2e-debian \
		$(if $(ONE_NGINX),-m 'once or carried or bare') $(ARGS) $(call all,tests/e2e tests/hosts)

e2e-1.28: tested ## ... nginx 1.28 only
	@scripts/build-nginx-1.28
	@scripts/build-nginx-module 1.28 --tested
	SSZIP_NGINX=$(NGINX_128)/sbin/nginx SSZIP_MODULE=$(TESTED)/nginx-1.28/$(MODULE) \
	SSZIP_MODULE_FAULTS=$(TESTED)/nginx-1.28/$(MODULE) \
	SSZIP_HOSTS=nginx \
	$(PYTHON) scripts/run-pytest e2e-1.28 -m 'bare and not once and not carried' $(ARGS) $(call all,tests/e2e tests/hosts)

e2e-asan: tested ## ... nginx 1.28 with AddressSanitizer only
	@scripts/build-nginx-1.28 --asan
	@scripts/build-nginx-module 1.28-asan --tested
	SSZIP_NGINX=$(NGINX_ASAN)/sbin/nginx SSZIP_MODULE=$(TESTED)/nginx-1.28-asan/$(MODULE) \
	SSZIP_MODULE_FAULTS=$(TESTED)/nginx-1.28-asan/$(MODULE) SSZIP_NGINX_ASAN=1 \
	SSZIP_HOSTS=nginx \
	$(PYTHON) scripts/run-pytest e2e-asan -m 'not once$(if $(ONE_NGINX), and not carried and not memory)' $(ARGS) $(call all,tests/e2e tests/hosts)

ROWS := $(addprefix tests/,e2e/test_cases_nginx.py e2e/test_sequences_nginx.py \
	envoy/test_cases_envoy.py envoy/test_sequences_envoy.py)
ROWS_WASM := tests/envoy/test_cases_wasm.py tests/envoy/test_sequences_wasm.py

rows: tested ## the parity table on Debian's nginx and on Envoy's module
	$(PYTHON) scripts/run-pytest rows $(ARGS) $(ROWS)

row: tested ## rows of the table on the core and all hosts: ROW="words of its name"
	@scripts/list-rows "$(ROW)"
	SSZIP_ROW="$(ROW)" cargo test --quiet $(CRATES) --test table
	SSZIP_ROW="$(ROW)" $(PYTHON) scripts/run-pytest row -n 2 -vv $(ARGS) $(ROWS) $(ROWS_WASM)

e2e-shipped: build tested ## ... all rows, and tests marked `shipped`, on the output of `make build`
	@# the variable of this make would keep the value of what the tests run
	$(MAKE) --no-print-directory rows-shipped SHIPPED=1 SSZIP_MODULE=$(CURDIR)/build/nginx/$(MODULE)

rows-shipped:
	$(PYTHON) scripts/run-pytest e2e-shipped $(ARGS) $(ROWS) $(ROWS_WASM) \
		$$(git grep -l 'mark\.shipped' 'tests/*/test_*.py')

e2e-docker: setup build ## ... the stack in Docker only, of build/; where an engine can be started
	@scripts/setup docker
	@scripts/docker-test --prebuilt --if-possible

docker-test: ## builds the images of docker/ from source, runs the stack, kills and upgrades it
	@scripts/setup docker
	@scripts/docker-test

# The machine's own Debian packs what `make build` has made; another one compiles in a chroot.
deb: $(if $(RELEASE),,build) ## Debian packages in build/deb/, of RELEASE=trixie in a chroot
	@scripts/setup deb
	@scripts/build-deb --lint $(addprefix --release ,$(RELEASE))

e2e-packages: setup build ## ... the packages only, in Debians of their own; where those can be created
	@scripts/setup deb
	@scripts/package-test --if-possible

deb-test: setup build ## tests the packages, of RELEASE=trixie too
	@scripts/setup deb
	@scripts/package-test $(addprefix --release ,$(RELEASE))

release: ## packages, modules, Wasm, SBOMs and checksums of the tagged version in build/release/
	@scripts/release --check
	@$(MAKE) --no-print-directory deb RELEASE=
	@scripts/setup release
	@scripts/release

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

bench: build ## sszip next to other encoders and caches; writes tables to loadtest/results/
	@scripts/setup bench
	loadtest/bench/run

compare: build ## nginx and Envoy with sszip next to other servers, in one run (35 minutes)
	@scripts/setup compare
	loadtest/compare/run

scale: build ## workers, connections, keys, a store of STORE_GB (16), and a model (20 minutes)
	@scripts/setup bench
	loadtest/compare/scale --store-gb $(or $(STORE_GB),16)

clean: ## removes build/ and the compiled files in the caches
	rm -rf build "$(CARGO_TARGET_DIR)" "$(SSZIP_CACHE)/module" "$(SSZIP_CACHE)/pycache" "$(TESTED)" \
		"$(NGINX_128)" "$(NGINX_ASAN)"
