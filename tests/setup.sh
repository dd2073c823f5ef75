#!/bin/sh
# setup.sh build|test: install what this machine lacks, by apt, and say so first. Nothing missing: apt is never started.
# Exit 1 with one sentence when something can not be installed.
set -eu
what=${1:-build}
fail() { echo "setup: $*" >&2; exit 1; }

missing=
need() { # need PACKAGE TEST...: the package is wanted when the test fails
	pkg=$1; shift
	"$@" >/dev/null 2>&1 || case " $missing " in *" $pkg "*) ;; *) missing="$missing $pkg" ;; esac
}
have() { command -v "$1"; }
sbin() { command -v "$1" || [ -x "/usr/sbin/$1" ] || [ -x "/sbin/$1" ]; }

need gcc have gcc
need libc6-dev test -e /usr/include/stdio.h
need pkg-config have pkg-config
need libseccomp-dev test -e /usr/include/seccomp.h
need git have git
need ca-certificates test -e /etc/ssl/certs/ca-certificates.crt
if [ "$what" = test ]; then
	need qemu-system-x86 have qemu-system-x86_64
	need busybox-static test -x /bin/busybox
	need cpio have cpio
	need kmod sbin depmod
	need e2fsprogs sbin mkfs.ext4
	need bubblewrap have bwrap
	need tmux have tmux
	need strace have strace
	need iproute2 have ip
	need python3 have python3
	need xz-utils have xz
	need openssl have openssl
	need git-lfs have git-lfs
fi

if [ -n "$missing" ]; then
	command -v apt-get >/dev/null || fail "missing:$missing; install them with this system's package manager (only apt is known here)"
	sudo=
	if [ "$(id -u)" != 0 ]; then
		command -v sudo >/dev/null || fail "missing:$missing; run as root: apt-get install$missing"
		sudo=sudo
	fi
	echo "setup: installing$missing"
	export DEBIAN_FRONTEND=noninteractive
	# shellcheck disable=SC2086
	run() { $sudo env DEBIAN_FRONTEND=noninteractive TMPDIR=/var/tmp apt-get -qq -o Dpkg::Use-Pty=0 -o DPkg::Lock::Timeout=120 "$@" </dev/null; }
	# shellcheck disable=SC2086
	run install -y --no-install-recommends $missing >/dev/null 2>&1 || {
		run update >/dev/null || fail "apt-get update did not work; missing:$missing"
		run install -y --no-install-recommends $missing >/dev/null || fail "apt-get install$missing did not work"
	}
fi

want=$(awk '$1 == "go" {print $2; exit}' go.mod)
command -v go >/dev/null || fail "go $want is not installed: unpack https://go.dev/dl/go$want.linux-$(dpkg --print-architecture 2>/dev/null || echo amd64).tar.gz in /usr/local, or install any go >= 1.21 (it fetches $want by itself)"
got=$(GOTOOLCHAIN=local go env GOVERSION 2>/dev/null | sed 's/^go//')
case $got in
1.[0-9] | 1.[0-9].* | 1.1[0-9]* | 1.20*) fail "go $got is too old to fetch the toolchain that go.mod names ($want): install go >= 1.21" ;;
esac
exit 0
