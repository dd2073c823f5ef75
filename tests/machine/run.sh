#!/bin/bash
# run.sh [--short] [--only PACKAGE] [ROW|6.1|6.12|all]... [-- COMMAND]: boot whole machines under QEMU (KVM where it is real, else emulation): a Debian kernel,
# a root file system of Debian packages, cgroup v2; on each row of the matrix below. Without a command: `agentos doctor`, whose tier must be
# the row's, the command line's scripts, every test that needs root, the escape acts; with --short one jail at work and the acts of
# short.acts. With a command: that, in a shell of the guest. tests/kernel does the BPF programs alone, in seconds.
# AGENTOS_RUN (-test.run) and AGENTOS_ACTS (names of escape acts) choose among tests.
# Exit 1 when a program failed, when fewer tests ran than the list says, or when a row did not finish.
set -eu -o pipefail
cd "$(dirname "$0")/../.."
short=0 only= command=; rows=()
while [ $# -gt 0 ]; do
	case $1 in
	--short) short=1 ;;
	--only) only=$2; shift ;;
	--) shift; command="$*"; break ;;
	*) rows+=("$1") ;;
	esac
	shift
done
[ ${#rows[@]} -gt 0 ] || rows=(all)
bin=${AGENTOS_BIN:-bin}
cache=$PWD/tests/.cache/machine; mkdir -p "$cache"
no_bpf=landlock,lockdown,yama,integrity,apparmor

# name  kernel  expected tier  kernel command line
matrix="
6.1-lsm        6.1   A  lsm=$no_bpf,bpf preempt=voluntary
6.1-stock      6.1   B  lsm=$no_bpf preempt=voluntary
6.12-lsm       6.12  A  lsm=$no_bpf,bpf preempt=voluntary
6.12-stock     6.12  B  lsm=$no_bpf preempt=voluntary
6.12-preempt   6.12  C  lsm=$no_bpf preempt=full
"
wanted() { # wanted NAME KERNEL
	local r
	for r in "${rows[@]}"; do case $r in all | "$1" | "$2") return 0 ;; esac; done
	return 1
}
for r in "${rows[@]}"; do # a row that does not exist must not pass
	[ "$r" = all ] || grep -qE "(^| )$r( |\$)" <<<"$(awk '{print $1, $2}' <<<"$matrix")" || { echo "machine: no row $r in:$matrix" >&2; exit 2; }
done
command -v qemu-system-x86_64 >/dev/null || { echo "machine: qemu-system-x86_64 is missing; run tests/setup.sh test" >&2; exit 1; }
PATH=$PATH:/usr/sbin:/sbin

compile() { # compile PACKAGE: its root tests and testdata into the payload, one line of the list: package, program, arguments
	local pkg=$1 name=${1//\//-}; shift
	mkdir -p "$work/payload/$pkg"
	go test -c -tags root -o "$work/payload/bin/$name.test" "./$pkg"
	[ -x "$work/payload/bin/$name.test" ] || { echo "machine: $pkg has no tests" >&2; return 1; }
	[ ! -d "$pkg/testdata" ] || cp -r "$pkg/testdata" "$work/payload/$pkg/"
	echo "$pkg /mnt/bin/$name.test $*" >>"$work/payload/list"
}

payload() { # the programs and each package's testdata, as the disk /mnt of the guest
	mkdir -p "$work/payload/bin"
	cp "$bin/agentos" "$bin/agentos-helper" "$bin/agentos-init" "$bin/agentos-netd" "$bin/act" "$work/payload/bin/" || { echo "machine: bin/ is not complete; run make build bin/act" >&2; exit 1; }
	[ ! -x "$bin/bench" ] || cp "$bin/bench" "$work/payload/bin/"
	cp tests/machine/guest.sh "$work/payload/"
	: >"$work/payload/list"
	[ -z "$command" ] || { printf '%s\n' "$command" >"$work/payload/command"; return 0; }
	if [ $short = 1 ]; then
		compile tests/script -test.run '^TestScript$/^enforce$'
		compile tests/escape -test.run '^TestEscapeAsUser$'
		return
	fi
	local pkg
	for pkg in $(grep -rlE '^//go:build .*\broot\b' --include='*_test.go' . | xargs -r -n1 dirname | sort -u | sed 's#^\./##'); do
		[ -z "$only" ] || [ "$only" = "$pkg" ] || continue
		compile "$pkg" ${AGENTOS_RUN:+-test.run "$AGENTOS_RUN"}
	done
}

initramfs() { # initramfs KERNEL OUT: busybox, disk and overlay modules in loading order, and an init that switches to the disk
	local dir=$1 out=$2 version tmp n=0 ko
	version=$(basename "$dir"/lib/modules/*)
	tmp=$(mktemp -d "$work/init.XXXXXX"); mkdir -p "$tmp"/{bin,mod,proc,sys,dev,root}
	cp /bin/busybox "$tmp/bin/busybox"
	depmod -b "$dir" "$version"
	for m in virtio_pci virtio_blk overlay vsock dummy veth; do
		while read -r _ ko _; do
			n=$((n + 1))
			case $ko in *.xz) xz -dc "$ko" ;; *) cat "$ko" ;; esac >"$tmp/mod/$(printf '%03d' $n).ko"
		done < <(modprobe -d "$dir" -S "$version" --show-depends $m 2>/dev/null | grep '^insmod' || true)
	done
	cat >"$tmp/init" <<'I'
#!/bin/busybox sh
/bin/busybox mount -t proc proc /proc; /bin/busybox mount -t sysfs sysfs /sys; /bin/busybox mount -t devtmpfs devtmpfs /dev
for m in /mod/*.ko; do /bin/busybox insmod $m 2>/dev/null; done
n=0; while [ ! -b /dev/vdb ] && [ $n -lt 100 ]; do /bin/busybox sleep 0.1; n=$((n + 1)); done
/bin/busybox mount -t ext4 /dev/vda /root && /bin/busybox mount -t ext4 /dev/vdb /root/mnt || /bin/busybox poweroff -f
/bin/busybox mount --move /dev /root/dev
/bin/busybox umount /proc /sys
exec /bin/busybox switch_root /root /bin/bash /mnt/guest.sh
I
	chmod +x "$tmp/init"
	(cd "$tmp" && find . | cpio -o -H newc --quiet | gzip -1) >"$out"
}

# Paravirtual KVM (kvm-pvm on rented machines) starts these guests and then makes no progress. QEMU 7.2 emulates cmpxchg16b wrongly under
# interrupts, which crashes the slab allocator of 6.12 at random; without the feature the kernel does not use it.
accel=tcg,thread=multi cpu=max,la57=off,cx16=off
if [ -w /dev/kvm ] && { [ -d /sys/module/kvm_intel ] || [ -d /sys/module/kvm_amd ]; }; then accel=kvm cpu=host; fi
accel=${MACHINE_ACCEL:-$accel} cpu=${MACHINE_CPU:-$cpu}
work=$(mktemp -d "${TMPDIR:-/var/tmp}/agentos-machine.XXXXXX")
trap 'rm -rf "$work"' EXIT
(flock 9; tests/machine/image.sh "$cache/root.ext4") 9>"$cache/.lock"
payload
acts=${AGENTOS_ACTS:-}
[ $short = 0 ] || acts=$(sed 's/#.*//' tests/machine/short.acts | xargs)
failed=0
while read -r name kernel tier cmdline; do
	[ -n "$name" ] && wanted "$name" "$kernel" || continue
	dir=$(tests/machine/fetch.sh "$kernel")
	initramfs "$dir" "$work/$kernel.cpio.gz"
	{ echo "AGENTOS_EXPECT_TIER=$tier"; echo "AGENTOS_ACTS='$acts'"; echo "MACHINE_SHORT=${short#0}"; } >"$work/payload/row"
	rm -f "$work/payload.ext4"; truncate -s 1G "$work/payload.ext4"
	mkfs.ext4 -q -F -O ^has_journal -m 0 -E root_owner=0:0 -d "$work/payload" "$work/payload.ext4"
	kind=; [ $short = 0 ] || kind=.short; [ -z "$command" ] || kind=.command
	log=$cache/$name$kind.log; : >"$log"; start=$SECONDS
	echo "machine: $name (kernel $(basename "$dir"/lib/modules/*), $accel, tier $tier expected)"
	timeout -k 5 "${MACHINE_TIMEOUT:-2400}" qemu-system-x86_64 -accel $accel -machine pc -cpu $cpu -smp "${MACHINE_CPUS:-$((2 - short))}" -m 2048 -display none -no-reboot -monitor none \
		-nic none -serial "file:$log" -kernel "$(ls "$dir"/boot/vmlinuz-*)" -initrd "$work/$kernel.cpio.gz" \
		-drive file="$cache/root.ext4",format=raw,if=virtio,snapshot=on -drive file="$work/payload.ext4",format=raw,if=virtio,snapshot=on \
		-append "console=ttyS0 quiet loglevel=3 panic=-1 mitigations=off random.trust_cpu=on $cmdline ${MACHINE_APPEND:-}" </dev/null || true
	tr -d '\r' <"$log" | sed -n '/^MACHINE-TEST/d; /^MACHINE-BOOT/,/^MACHINE-END/s/^/  /p'
	if ! grep -q '^MACHINE-END' "$log"; then echo "  $name did not finish; the end of $log:"; tail -n 20 "$log"; failed=1; fi
	results=$(tr -d '\r' <"$log" | grep -c '^MACHINE-RESULT' || true)
	[ "$results" = "$(wc -l <"$work/payload/list")" ] || { echo "  $name: $results results, want one per line of the list"; failed=1; }
	[ "$results" -gt 0 ] || [ -n "$command" ] || { echo "  $name: nothing ran"; failed=1; }
	if tr -d '\r' <"$log" | awk '/^MACHINE-RESULT/ && ($3 != 0 || $4 == 0) {bad = 1} /^MACHINE-(SPLAT|WRONG)/ {bad = 1} END {exit !bad}'; then failed=1; fi
	echo "machine: $name took $((SECONDS - start)) s"
done <<<"$matrix"
if [ $failed = 0 ]; then echo "machine: ok"; else echo "machine: FAILED"; fi
exit $failed
