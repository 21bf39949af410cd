# Everything that one does with Longrun: one command each. `make help` lists them.

SHELL := /bin/bash
export PATH := $(PATH):$(HOME)/.cargo/bin

target_dir := $(or $(CARGO_TARGET_DIR),target)
longrun := $(abspath $(target_dir)/release/longrun)
lab := $(abspath $(target_dir)/release/longrun-lab)
# Tests that mount volumes need root: built as the user, run through sudo.
# A volume is never taken from the environment, where something else may be meant by it.
volume := $(if $(findstring command line,$(origin VOLUME)),$(VOLUME))
as_root := $(if $(filter 0,$(shell id -u)),,sudo -E)
test_runner := $(if $(as_root),--config 'target."cfg(unix)".runner="sudo -E"')
PREFIX ?= /usr/local
UNIT_DIR ?= /etc/systemd/system

.PHONY: help build run test lint deny advisories bench bench-scan bench-prevention bench-layouts bench-ageing bench-invisibility bench-guests bench-trace torture crash fuzz install clean

help: ## This list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 18

build: ## The release binary
	@scripts/prepare.sh build
	cargo build --release --locked -p longrun-cli

run: ## The demo (ARGS=--once ends after it), or VOLUME=/mnt/data for a real volume
	@scripts/prepare.sh run
	cargo build --release --locked -p longrun-cli
	@LONGRUN=$(longrun) VOLUME="$(volume)" scripts/demo.sh $(ARGS)

test: ## Formatting, lints, file sizes, and all tests, those that mount volumes included
	@scripts/prepare.sh test
	cargo fmt --all --check
	scripts/check-file-sizes.sh
	scripts/check-hazards.sh
	cargo clippy --workspace --all-targets --locked -- -D warnings
	cargo test --workspace --locked $(test_runner)

lint: ## Formatting, lints, file sizes, licences
	@scripts/prepare.sh build
	cargo fmt --all --check
	scripts/check-file-sizes.sh
	scripts/check-hazards.sh
	cargo clippy --workspace --all-targets --locked -- -D warnings
	$(MAKE) deny

deny: ## Licences, sources and duplicates of the dependencies (installs cargo-deny when it is missing)
	@command -v cargo-deny >/dev/null || cargo install --locked cargo-deny
	cargo deny --locked check bans licenses sources

advisories: ## Known holes in the dependencies (needs the network)
	@command -v cargo-deny >/dev/null || cargo install --locked cargo-deny
	cargo deny --locked check advisories

bench: ## The first part of docs/benchmarks.md: Longrun and each file system's own tools on copies of one volume (takes long; ARGS="--filesystem xfs --recipe churn")
	@scripts/prepare.sh test
	cargo build --release --locked -p longrun-cli -p longrun-lab
	$(as_root) $(lab) bench --output docs/benchmarks.md $(ARGS)

bench-scan: ## How fast a million small files are analyzed on each file system, against asking each (ARGS="--files 200000 --filesystem xfs")
	@scripts/prepare.sh test
	cargo build --release --locked -p longrun-cli -p longrun-lab
	$(as_root) $(lab) scan --output docs/benchmarks.md $(ARGS)

bench-prevention: ## Its last part: writing with prevention and without it (takes long; ARGS="--filesystem xfs --profile direct")
	@scripts/prepare.sh test
	cargo build --release --locked -p longrun-cli -p longrun-lab
	$(as_root) $(lab) prevention --output docs/benchmarks.md $(ARGS)

bench-layouts: ## Reading, copying and using as databases do fragmented and optimized files, and installing software, on modelled disks (ARGS="--only oltp --model hdd")
	@scripts/prepare.sh test
	cargo build --release --locked -p longrun-cli -p longrun-lab
	$(as_root) $(lab) layouts --output docs/benchmarks.md $(ARGS)

bench-ageing: ## Weeks of a volume's life: looked after by nobody, by the file system's own tool, by the service (ARGS="--filesystem xfs --days 28")
	@scripts/prepare.sh test
	cargo build --release --locked -p longrun-cli -p longrun-lab
	$(as_root) $(lab) ageing --output docs/benchmarks.md $(ARGS)

bench-invisibility: ## Working beside an optimizer, unthrottled and invisible, on modelled disks (ARGS="--model hdd --scheduler bfq")
	@scripts/prepare.sh test
	cargo build --release --locked -p longrun-cli -p longrun-lab
	$(as_root) $(lab) invisibility --output docs/benchmarks.md $(ARGS)

bench-guests: ## Two virtual machines (QEMU) on one modelled disk: how soon the optimizer in one notices the other (ARGS="BURSTS MODEL")
	@scripts/prepare.sh guests
	cargo build --release --locked -p longrun-cli -p longrun-lab
	cargo build --release --locked -p longrun-governor --example neighbour
	$(as_root) env LONGRUN=$(longrun) LAB=$(lab) NEIGHBOUR=$(abspath $(target_dir)/release/examples/neighbour) scripts/measure-guests.sh $(ARGS)

bench-trace: ## What the I/O trace costs at 20,000 requests a second (ARGS="ITERATIONS SECONDS IOPS")
	@scripts/prepare.sh test
	cargo build --release --locked -p longrun-cli
	$(as_root) env LONGRUN=$(longrun) scripts/measure-trace.sh $(ARGS)

torture: ## Every kind of writer beside an optimizer, on each file system (ARGS="--seconds 600 --seed 7 --filesystem xfs")
	@scripts/prepare.sh test
	cargo build --release --locked -p longrun-cli -p longrun-lab
	$(as_root) $(lab) torture $(ARGS)

trimming: ## Files grow in every way while their runways come and go (ARGS="--appends 300000 --fs all")
	@scripts/prepare.sh test
	cargo build --release --locked -p longrun-lab
	$(as_root) $(lab) trim-torture $(ARGS)

crash: ## Optimizers cut off at random moments on each file system, everything compared after recovery (ARGS="--runs 100 --seed 1 --filesystem xfs")
	@scripts/prepare.sh test
	cargo build --release --locked -p longrun-cli -p longrun-lab
	$(as_root) $(lab) crash $(ARGS)

fuzz: ## The ext4 parser against damaged volumes, 5 minutes (ARGS="-max_total_time=3600"; installs cargo-fuzz when missing)
	@scripts/prepare.sh test
	@command -v cargo-fuzz >/dev/null || cargo install --locked cargo-fuzz
	fuzz/make-seeds
	RUSTC_BOOTSTRAP=1 cargo fuzz run ext4_scan -- $(or $(ARGS),-max_total_time=300)

install: build ## Binary, manual pages, completions under PREFIX (/usr/local), and the unit of the service (it is not started)
	$(as_root) install -D -m 755 $(longrun) $(DESTDIR)$(PREFIX)/bin/longrun
	$(as_root) install -d $(DESTDIR)$(PREFIX)/share/man/man1 $(DESTDIR)$(PREFIX)/share/bash-completion/completions
	$(as_root) $(longrun) man $(DESTDIR)$(PREFIX)/share/man/man1
	sed 's|/usr/local/bin|$(PREFIX)/bin|' packaging/longrun.service | $(as_root) install -D -m 644 /dev/stdin $(DESTDIR)$(UNIT_DIR)/longrun.service
	$(as_root) install -D -m 644 packaging/longrun.toml $(DESTDIR)$(PREFIX)/share/doc/longrun/longrun.toml
	test -e $(DESTDIR)/etc/longrun/longrun.toml || $(as_root) install -D -m 644 packaging/longrun.toml $(DESTDIR)/etc/longrun/longrun.toml
	$(longrun) completions bash | $(as_root) tee $(DESTDIR)$(PREFIX)/share/bash-completion/completions/longrun >/dev/null

clean: ## Build products
	cargo clean
