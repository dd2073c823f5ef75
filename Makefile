# AgentOS. `make` or `make help` lists the targets; each has its one line beside it.
SHELL   := /bin/bash
.DEFAULT_GOAL := help
.SUFFIXES:
MAKEFLAGS += --no-print-directory

PREFIX     ?= /usr/local
DESTDIR    ?=
LIBEXEC    := $(PREFIX)/libexec/agentos
UNITDIR    ?= $(PREFIX)/lib/systemd/system
TMPFILES   ?= $(PREFIX)/lib/tmpfiles.d
AGENT      ?=
WORKSPACE  ?= .
POLICY     ?= strict
KERNEL     ?= all
FUZZTIME   ?= 20s
COUNT      ?= 21

# go may be installed and not on PATH (root shells, CI): the usual places are tried before tests/setup.sh says how to get it.
GO   := $(shell command -v go 2>/dev/null || { test -x /usr/local/go/bin/go && echo /usr/local/go/bin/go; } || { test -x /usr/lib/go/bin/go && echo /usr/lib/go/bin/go; } || echo go)
export PATH := $(patsubst %/,%,$(dir $(GO))):$(PATH)
SUDO := $(shell [ "$$(id -u)" = 0 ] || echo "sudo -E env PATH=$$PATH")
EXEC := $(shell [ "$$(id -u)" = 0 ] || echo '-exec "sudo -E"')
# What the programs of one build call themselves; helper and init of different builds refuse each other. Without git: the sources.
BUILD := $(shell git describe --always --dirty --abbrev=12 --match 'v*' 2>/dev/null || \
  echo "src-$$(find audit bpf cgroup cmd jail netpolicy orchestrator policy go.mod go.sum -type f ! -name '*_test.go' -print0 | LC_ALL=C sort -z | xargs -0 cat | sha256sum | cut -c1-12)")
STAMP := -X github.com/agentos/agentos/jail/packet.build=$(BUILD)
# Packages with tests that need root: found by their build tag, so that no list here can forget one.
ROOTPKGS = $(shell grep -rlE '^//go:build .*\broot\b' --include='*_test.go' . 2>/dev/null | xargs -r -n1 dirname | sort -u | grep -vE '^\./tests/(agents|escape|script)$$')
OWNGO    = $(shell git ls-files -co --exclude-standard '*.go' | grep -vE '_bpfel\.go$$')

.PHONY: help
help: ## list the targets
	@awk -F':.*## ' '/^[a-z][a-z-]*:.*## /{printf "  %-13s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

.PHONY: setup
setup: ## install what a fresh machine lacks for building (apt; sudo when not root)
	@tests/setup.sh build

.PHONY: build
build: bin ## build the programs into bin/
# The helper's libraries need cgo for libseccomp alone: names and users are resolved by Go, so that root loads no plug-ins of the C library's
# resolver, and so that most packages are compiled once for all three programs.
bin: FORCE
	@CGO_ENABLED=0 packaging/build.sh agentos -ldflags '$(STAMP)'
	@CGO_ENABLED=1 packaging/build.sh agentos-helper -tags netgo,osusergo -ldflags '$(STAMP)'
	@CGO_ENABLED=0 packaging/build.sh agentos-init -ldflags '-s -w $(STAMP)'
	@CGO_ENABLED=0 packaging/build.sh agentos-netd -ldflags '$(STAMP)'
FORCE:

.PHONY: run
run: setup build ## the main job: a jailed agent at work, then its record (AGENT=claude: that agent, here or on WORKSPACE)
	@WORKSPACE="$(WORKSPACE)" packaging/try/try.sh "$(POLICY)" $(AGENT)

.PHONY: test
test: ## every test there is, after installing what they need
	@tests/setup.sh test
	@tests/all.sh

.PHONY: check
check: ## formatting, vet, staticcheck, floors, sizes, docs; no root, under a minute
	@bad=$$($(GO) tool gofumpt -l $(OWNGO)); [ -z "$$bad" ] || { echo "check: gofumpt -w these:"; echo "$$bad"; exit 1; }
	@bad=$$($(GO) tool goimports -local github.com/agentos/agentos -l $(OWNGO)); [ -z "$$bad" ] || { echo "check: goimports -local github.com/agentos/agentos -w these:"; echo "$$bad"; exit 1; }
	@for s in $$(git ls-files -co --exclude-standard '*.sh') .ci/run; do sh -n $$s 2>/dev/null || bash -n $$s || exit 1; done
	$(GO) vet ./...
	$(GO) vet -tags root ./...
	@if command -v golangci-lint >/dev/null; then echo golangci-lint run; golangci-lint run; else echo "$(GO) tool staticcheck ./..."; $(GO) tool staticcheck -tags root ./...; fi
	$(GO) test ./tests
	GOOS=darwin GOARCH=arm64 CGO_ENABLED=0 $(GO) build $$($(GO) list -f '{{.ImportPath}}' ./policy/... ./audit/event/... ./jail/packet/... ./orchestrator/... ./cmd/agentos/... 2>/dev/null)

.PHONY: test-unit
test-unit: ## tests that need no root (RACE=1: with the race detector)
	$(GO) test $(if $(RACE),-race) ./...

.PHONY: test-root
test-root: build ## tests that make real jails; root, or a user with sudo
	@[ -z "$(ROOTPKGS)" ] || { echo $(GO) test -tags root -p 1 $(ROOTPKGS); AGENTOS_BIN=$(CURDIR)/bin $(GO) test -tags root -count=1 -p 1 $(EXEC) $(ROOTPKGS); }

.PHONY: test-script
test-script: build ## the command line, as txtar scripts
	AGENTOS_BIN=$(CURDIR)/bin $(GO) test -tags root -count=1 $(EXEC) ./tests/script

.PHONY: test-kernel
test-kernel: build ## Debian kernels 6.1 and 6.12 under QEMU, with and without bpf in lsm= (KERNEL=6.1|6.12|all)
	@tests/kernel/run.sh $(if $(filter-out all,$(KERNEL)),$(KERNEL))

.PHONY: test-tiers
test-tiers: build bin/act ## whole Debian machines, 6.12 on tier A and 6.1 on tier B: doctor, a jail at work, some escape acts
	@tests/machine/run.sh --short 6.12-lsm 6.1-stock

.PHONY: test-machine
test-machine: build bin/act ## whole Debian machines 6.1 and 6.12 under QEMU: doctor, all jail tests, all escape acts on tiers A, B, C (minutes each)
	@tests/machine/run.sh $(KERNEL)

bin/act: $(wildcard tests/escape/act/*.[ch])
	@mkdir -p bin; echo "build bin/act"
	@gcc -O1 -static -Wall -Wextra -Wno-unused-result -pthread -o $@ $(filter %.c,$^)

.PHONY: escape
escape: build bin/act ## the escape corpora: our acts, then ../shared/escape where it is present
	AGENTOS_BIN=$(CURDIR)/bin $(GO) test -tags root -count=1 $(EXEC) -v -run . ./tests/escape | grep -vE '^=== '; exit $${PIPESTATUS[0]}
	@tests/escape/outside.sh

bin/model: FORCE
	@CGO_ENABLED=0 $(GO) build -trimpath -o $@ ./tests/agents/model

.PHONY: test-agents
test-agents: build bin/model ## real agents (Claude Code, Codex, ...) in jails, with a scripted model; npm installs them once
	@tests/agents/run.sh

.PHONY: fuzz
fuzz: ## each fuzz target for FUZZTIME (20s)
	@set -e; grep -rlE '^func Fuzz[A-Z]' --include='*_test.go' . | while read -r f; do \
	  d=$$(dirname $$f); for t in $$(grep -ohE '^func Fuzz[A-Za-z0-9_]+' $$f | cut -c6-); do \
	    echo "fuzz $$d $$t"; $(GO) test -run '^$$' -fuzz "^$$t\$$" -fuzztime $(FUZZTIME) $$d </dev/null; done; done

.PHONY: bench
bench: build ## start and work inside against outside, bubblewrap, runc, crun; compiling of globs: one table (COUNT=21 rounds)
	@$(GO) build -o bin/bench ./tests/bench && $(SUDO) bin/bench -count $(COUNT)

.PHONY: bench-start
bench-start: build ## start under 20 deny globs in a workspace of 300,000 files and in an empty one, beside bubblewrap with masks
	@$(GO) build -o bin/bench ./tests/bench && $(SUDO) bin/bench -count $(COUNT) -only tree

.PHONY: bench-kernel
bench-kernel: ## what the kernel programs cost in instructions: QEMU -icount, kernels 6.1 and 6.12, tiers A and B (KERNEL=6.12: one)
	@tests/kernel/count.sh $(if $(filter-out all,$(KERNEL)),$(KERNEL))

.PHONY: bench-work
bench-work: build bin/act ## work inside against outside on tiers A and B in instructions: git status, tar, a C project (KERNEL=6.12-lsm: one row)
	@$(GO) build -o bin/bench ./tests/bench
	@for row in $(if $(filter-out all,$(KERNEL)),$(KERNEL),6.12-lsm 6.12-stock); do \
	  MACHINE_ACCEL='tcg,thread=single -icount shift=0,sleep=off' MACHINE_CPUS=1 tests/machine/run.sh $$row -- \
	  "/mnt/bin/bench -only work -work 1 -job 'open+close,git status,tar,gcc project'" || exit 1; done

.PHONY: generate
generate: ## BPF objects (clang), policy schema, golden files
	$(GO) generate ./...

.PHONY: verify
verify: generate ## generated files are what their sources say
	$(GO) mod verify
	git diff --exit-code -- . ':!go.sum'

.PHONY: install
install: build ## install below PREFIX (/usr/local) and, with systemd, its units
	@PREFIX=$(PREFIX) DESTDIR=$(DESTDIR) UNITDIR=$(UNITDIR) TMPFILES=$(TMPFILES) packaging/install.sh install

.PHONY: uninstall
uninstall: ## remove what install put there; logs and org policies stay
	@PREFIX=$(PREFIX) DESTDIR=$(DESTDIR) UNITDIR=$(UNITDIR) TMPFILES=$(TMPFILES) packaging/install.sh uninstall

.PHONY: clean
clean: ## remove what build and the tests made in the tree
	rm -rf bin tests/.cache
