# One command for each task. `make help` lists them.

SHELL := /bin/bash
target_dir := $(or $(CARGO_TARGET_DIR),target)
export PATH := $(PATH):$(HOME)/.cargo/bin:$(abspath $(target_dir))/tools/bin

longrun := $(abspath $(target_dir)/release/longrun)
lab := $(abspath $(target_dir)/release/longrun-lab)
# Tests that mount volumes need root: built as the user, run through sudo.
# A volume is never taken from the environment, where something else may be meant by it.
volume := $(if $(findstring command line,$(origin VOLUME)),$(VOLUME))
as_root := $(if $(filter 0,$(shell id -u)),,sudo -E)
# A judge of campaigns, which nothing that is shipped depends on.
fsx := $(abspath $(target_dir)/foreign/bin/fsx)
PREFIX ?= /usr/local
UNIT_DIR ?= /etc/systemd/system

.PHONY: help build run test campaign web-check test-kernels test-boot lint deny advisories bench bench-scan bench-scale bench-prevention bench-layouts bench-ageing bench-invisibility bench-guests bench-trace bench-databases bench-fleet torture torture-power torture-images torture-hostile torture-fleet trimming crash fuzz fuzz-api install uninstall deb rpm repo vendor test-packages test-ansible site clean

help: ## This list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 18

build: ## The release binaries
	@scripts/prepare.sh build
	cargo build --release --locked -p longrun-cli -p longrun-web -p longrun-fleet

run: ## The demo (ARGS=--once ends after it), or VOLUME=/mnt/data for a real volume
	@scripts/prepare.sh run
	cargo build --release --locked -p longrun-cli -p longrun-web
	@LONGRUN=$(longrun) VOLUME="$(volume)" scripts/demo.sh $(ARGS)

test: ## The gate: formatting, lints, documents, all tests but the campaigns, and the console; on both media where that matters
	@scripts/prepare.sh test
	scripts/test.sh

campaign: ## The long forms of the tests, and all others, with random seeds: crashes, torture, hostile users, fleets, ageing, rates (an hour)
	@scripts/prepare.sh test
	@echo "The campaigns take about an hour. TESTS='-E test(NAME)' selects, LONGRUN_SEED and PROPTEST_RNG_SEED repeat."
	cargo build --workspace --all-targets --locked
	scripts/run-tests.py campaign default solid-state -- $(TESTS)

web-check: ## The console: types, and all its pages in Chromium before a real service
	@scripts/prepare.sh test
	scripts/check-web.sh
	scripts/test.sh web

test-kernels: ## Prevention, optimizing and the checkers on the distribution's own kernel, in QEMU (ARGS="--filesystem xfs", KERNEL=package)
	@scripts/prepare.sh kernels
	cargo build --release --locked -p longrun-cli -p longrun-lab
	unit=$$(cargo test --locked -p longrun-volume --lib --no-run --message-format=json | \
		sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' | tail -1); test -x "$$unit" && \
		LONGRUN=$(longrun) LAB=$(lab) UNIT=$$unit scripts/test-kernels.sh $(ARGS)

test-boot: ## Boot a Debian in QEMU with the hook of `longrun boot enable`, and with faults that must not stop it (CASES="ahead killed", LIMIT=seconds)
	@scripts/prepare.sh boot-machine
	cargo build --release --locked -p longrun-cli
	$(as_root) env LONGRUN=$(longrun) scripts/test-boot.sh $(CASES)

lint: ## Formatting, lints, file sizes, links, licences
	@scripts/prepare.sh build
	cargo fmt --all --check
	scripts/check-file-sizes.sh
	scripts/check-arrows.sh
	scripts/check-hazards.sh
	scripts/check-links.sh
	scripts/check-messages.sh
	scripts/check-changelog.sh
	scripts/check-packaging.sh
	scripts/check-web.sh
	cargo clippy --workspace --all-targets --locked -- -D warnings
	$(MAKE) deny

deny: ## Licences, sources and duplicates of the dependencies (installs cargo-deny when it is missing)
	@scripts/prepare.sh deny
	cargo deny --locked check bans licenses sources

advisories: ## Known holes in the dependencies (needs the network)
	@scripts/prepare.sh deny
	cargo deny --locked check advisories

bench: ## Compare Longrun with each file system's own tools on copies of one volume (takes hours; ARGS="--filesystem xfs --recipe churn"; bench-* write docs/measurements.md)
	@scripts/prepare.sh test
	cargo build --release --locked -p longrun-cli -p longrun-lab
	$(as_root) $(lab) bench --output docs/measurements.md $(ARGS)

bench-scan: ## Time the analysis of a million small files on each file system, against asking for each file (ARGS="--files 200000 --filesystem xfs")
	@scripts/prepare.sh test
	cargo build --release --locked -p longrun-cli -p longrun-lab
	$(as_root) $(lab) scan --output docs/measurements.md $(ARGS)

bench-scale: ## Measure plans for 1 to 10 million simulated files, and full passes of real volumes with 2 million files (takes an hour; ARGS="--steps 3 --xfs-files 0")
	@scripts/prepare.sh test
	cargo build --release --locked -p longrun-cli -p longrun-lab
	$(as_root) $(lab) scale --output docs/measurements.md $(ARGS)

bench-prevention: ## Compare writing with prevention and without it (takes hours; ARGS="--filesystem xfs --profile direct")
	@scripts/prepare.sh test
	cargo build --release --locked -p longrun-cli -p longrun-lab
	$(as_root) $(lab) prevention --output docs/measurements.md $(ARGS)

bench-layouts: ## Compare reading, copying, database requests and installing software on fragmented and optimized volumes, on modelled disks (ARGS="--only oltp --model hdd")
	@scripts/prepare.sh test
	cargo build --release --locked -p longrun-cli -p longrun-lab
	$(as_root) $(lab) layouts --output docs/measurements.md $(ARGS)

bench-ageing: ## Compare weeks of ageing: no maintenance, the file system's own tool, the service (ARGS="--filesystem xfs --days 28")
	@scripts/prepare.sh test
	cargo build --release --locked -p longrun-cli -p longrun-lab
	$(as_root) $(lab) ageing --output docs/measurements.md $(ARGS)

bench-boot: ## Boot a Debian in a container on modelled disks, with reading ahead and without, by turns (half an hour; ARGS="--model hdd")
	@scripts/prepare.sh boot
	cargo build --release --locked -p longrun-cli -p longrun-lab
	$(as_root) env LONGRUN=$(longrun) LAB=$(lab) scripts/measure-boot.sh --output docs/boot.md $(ARGS)

bench-invisibility: ## Measure how much other I/O is delayed by an optimizer, unthrottled and invisible, on modelled disks (ARGS="--model hdd --scheduler bfq")
	@scripts/prepare.sh test
	cargo build --release --locked -p longrun-cli -p longrun-lab
	$(as_root) $(lab) invisibility --output docs/measurements.md $(ARGS)

bench-guests: ## Two virtual machines (QEMU) on one modelled disk: measure how soon the optimizer in one pauses for the other (ARGS="BURSTS MODEL")
	@scripts/prepare.sh guests
	cargo build --release --locked -p longrun-cli -p longrun-lab
	cargo build --release --locked -p longrun-governor --example neighbour
	$(as_root) env LONGRUN=$(longrun) LAB=$(lab) NEIGHBOUR=$(abspath $(target_dir)/release/examples/neighbour) scripts/measure-guests.sh $(ARGS)

bench-trace: ## Measure what the I/O trace costs at 20,000 requests a second (ARGS="ITERATIONS SECONDS IOPS")
	@scripts/prepare.sh test
	cargo build --release --locked -p longrun-cli
	$(as_root) env LONGRUN=$(longrun) scripts/measure-trace.sh $(ARGS)

bench-databases: ## Measure what PostgreSQL and SQLite notice of the service, in turn with and without it (ARGS="SECONDS TURNS FILESYSTEM...")
	@scripts/prepare.sh databases
	cargo build --release --locked -p longrun-cli
	$(as_root) env LONGRUN=$(longrun) scripts/measure-databases.sh $(ARGS)

torture: ## Every kind of writer beside an optimizer, on each file system (ARGS="--seconds 600 --seed 7 --filesystem xfs")
	@scripts/prepare.sh test
	cargo build --release --locked -p longrun-cli -p longrun-lab
	$(as_root) $(lab) torture $(ARGS)
	$(as_root) $(lab) torture --optimizer placing-files $(ARGS)
	$(MAKE) torture-power MOMENTS=$(or $(MOMENTS),500)
	$(MAKE) torture-images
	$(MAKE) torture-hostile

torture-power: ## Power lost before, and a failure of, every single write of runs on unmounted NTFS and ext4 volumes, a move of the MFT and leaked clusters included (hours; MOMENTS=500 for so many)
	@scripts/prepare.sh test
	LONGRUN_CUTS=$(or $(MOMENTS),all) scripts/run-tests.py campaign -- --ignore-default-filter -E 'test(/loop_(power_lost|a_failed_change|a_failure_while)/)'

torture-images: ## Longrun and QEMU killed at random moments of work on virtual disks (KILLS="--runs 30 --seed 7")
	@scripts/prepare.sh test
	cargo build --release --locked -p longrun-cli -p longrun-lab
	$(as_root) $(lab) kills $(KILLS)

torture-hostile: ## A user without privileges and stuck volumes beside the service, with fsx, fio and stress-ng as judges (HOSTILE="--seconds 600 --seed 7 --filesystem xfs"; installs fsx when missing)
	@scripts/prepare.sh hostile
	cargo build --release --locked -p longrun-cli -p longrun-lab
	@test -x $(fsx) || cargo install --locked --root $(target_dir)/foreign fsx
	$(as_root) $(lab) hostile --fsx $(fsx) $(HOSTILE)

torture-fleet: ## Policies for 50 real services; 200 agents in 10 groups at one broker, then at a cluster of 3, with faults of all kinds, until 10,000 grants each (an hour; FLEET="--agents 50 --grants 1000")
	@scripts/prepare.sh test
	cargo build --release --locked -p longrun-fleet -p longrun-lab
	$(as_root) $(lab) roll-out
	$(as_root) $(lab) fleet --name-spaces $(FLEET)

bench-fleet: ## What one broker bears: records of 10,000 hosts, and requests as their agents make them (ARGS="HOSTS SECONDS")
	@scripts/prepare.sh test
	cargo run --release --locked -p longrun-fleet --example many_hosts -- $(ARGS)

trimming: ## Files grow in every way while their runways come and go (ARGS="--appends 300000 --fs all")
	@scripts/prepare.sh test
	cargo build --release --locked -p longrun-lab
	$(as_root) $(lab) trim-torture $(ARGS)

crash: ## Optimizers cut off at random moments on each file system, everything compared after recovery (ARGS="--runs 100 --seed 1 --filesystem xfs")
	@scripts/prepare.sh test
	cargo build --release --locked -p longrun-cli -p longrun-lab
	$(as_root) $(lab) crash $(ARGS)
	$(as_root) $(lab) crash --optimizer placing-files $(ARGS)
	LONGRUN_MENDING_CRASHES=100 scripts/run-tests.py campaign -- -E 'binary(mend_crashes)'

fuzz: ## The ext4 and NTFS parsers against damaged volumes, 5 minutes each, and fuzz-api (ARGS="-max_total_time=3600"; installs cargo-fuzz when missing)
	@scripts/prepare.sh test
	@command -v cargo-fuzz >/dev/null || cargo install --locked cargo-fuzz
	fuzz/make-seeds
	RUSTC_BOOTSTRAP=1 cargo fuzz run ext4_scan -- $(or $(ARGS),-max_total_time=300)
	RUSTC_BOOTSTRAP=1 cargo fuzz run ext4_offline -- $(or $(ARGS),-max_total_time=300)
	RUSTC_BOOTSTRAP=1 cargo fuzz run ntfs_open -- $(or $(ARGS),-max_total_time=300)
	$(MAKE) fuzz-api

fuzz-api: ## Wrong requests of all kinds to the API of a real service for 10 minutes (API_SECONDS=3600 LONGRUN_SEED=7)
	@scripts/prepare.sh test
	LONGRUN_API_SECONDS=$(or $(API_SECONDS),600) scripts/run-tests.py campaign -- --ignore-default-filter -E 'test(no_request_makes_the_service_fail_or_grow)'

install: build ## Binary, manual pages, completions under PREFIX (/usr/local), and the unit of the service (it is not started)
	$(as_root) scripts/install.sh $(dir $(longrun)) "$(DESTDIR)" $(PREFIX) $(UNIT_DIR)

uninstall: ## Stop the service and remove what install put there; the configuration, the history and the journal stay
	$(if $(DESTDIR),,-$(as_root) systemctl disable --now longrun longrun-fleet longrun-fleet-console longrun-web.socket longrun-web-metrics.socket)
	$(as_root) rm -f $(DESTDIR)$(PREFIX)/bin/longrun $(DESTDIR)$(PREFIX)/share/man/man1/longrun.1 $(DESTDIR)$(PREFIX)/share/man/man1/longrun-*.1
	$(as_root) rm -f $(DESTDIR)$(PREFIX)/bin/longrun-web $(DESTDIR)$(PREFIX)/share/man/man8/longrun-web.8
	$(as_root) rm -f $(DESTDIR)$(PREFIX)/bin/longrun-fleet $(DESTDIR)$(PREFIX)/share/man/man8/longrun-fleet.8 $(addprefix $(DESTDIR)$(UNIT_DIR)/,longrun-fleet.service longrun-fleet-console.service)
	$(as_root) rm -f $(addprefix $(DESTDIR)$(UNIT_DIR)/,longrun.service longrun-web.service longrun-web.socket longrun-web-metrics.socket)
	$(as_root) rm -f $(addprefix $(DESTDIR)$(PREFIX)/share/,bash-completion/completions/longrun \
		fish/vendor_completions.d/longrun.fish zsh/site-functions/_longrun metainfo/org.longrun.longrun.metainfo.xml)
	$(as_root) rm -rf $(addprefix $(DESTDIR)$(PREFIX)/share/,doc/longrun longrun cockpit/longrun)
	@echo "Left in place: $(DESTDIR)/etc/longrun and /var/lib/longrun. Remove them when you no longer need them."

deb: ## The Debian packages in target/packages, checked by lintian (BINARIES=directory takes compiled programs from there)
	@scripts/prepare.sh build
	@scripts/prepare.sh deb
	BINARIES="$(BINARIES)" scripts/make-packages.sh deb

rpm: ## The RPM packages in target/packages, checked by rpmlint (BINARIES=directory takes compiled programs from there)
	@scripts/prepare.sh build
	@scripts/prepare.sh rpm
	BINARIES="$(BINARIES)" scripts/make-packages.sh rpm

repo: ## An apt and a dnf repository in target/repository of what deb and rpm made (KEY=... signs it)
	@scripts/prepare.sh repo
	scripts/repo.sh $(target_dir)/packages $(target_dir)/repository $(KEY)

vendor: ## The source with all crates, for builds without network, in target/packages
	scripts/make-packages.sh vendor

test-packages: ## Build, install, upgrade, remove and purge the Debian package in a booted container, with a real volume, and the console beside it
	@scripts/prepare.sh build
	@scripts/prepare.sh packages
	BINARIES="$(BINARIES)" scripts/make-packages.sh deb
	$(as_root) scripts/test-packages.sh $(target_dir)/packages

test-ansible: ## The Ansible role on five booted containers: twice, a rolling upgrade in the middle of work, metrics, removal (BINARIES=directory)
	@scripts/prepare.sh build
	@scripts/prepare.sh fleet
	BINARIES="$(BINARIES)" scripts/make-packages.sh deb
	$(as_root) scripts/test-ansible.sh $(target_dir)/packages

site: ## The documents as a static site in target/site (installs mdbook when it is missing)
	@command -v mdbook >/dev/null || cargo install --locked mdbook
	scripts/make-site.sh $(abspath $(target_dir)/site)

clean: ## Build products
	cargo clean
