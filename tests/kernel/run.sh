#!/bin/sh
# Runs the kernel tests (static Go test binaries) on Debian kernels under QEMU.
#
#   tests/kernel/run.sh [6.1] [6.12]       default: both
#   KERNEL_RUN=REGEXP                      only these tests
#   KERNEL_ROWS="A B full C"               rows of the matrix
#
# Rows: A     bpf in lsm=                       BPF LSM
#       B     no bpf in lsm=, preempt=voluntary  fmod_ret on security_*
#       full  no bpf in lsm=, preempt=full       B must be refused
# Kernels come from tests/machine/fetch.sh and stay in its cache. Needs qemu-system-x86_64,
# busybox (static), cpio and dpkg-deb; no root.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
rows=${KERNEL_ROWS:-A B full}
limit=${KERNEL_TIMEOUT:-720}
[ $# -gt 0 ] || set -- 6.1 6.12

say() { echo "kernel: $*" >&2; }
for tool in qemu-system-x86_64 busybox cpio dpkg-deb xz go; do
	command -v "$tool" >/dev/null || { say "$tool is missing"; exit 1; }
done

work=$(mktemp -d "${TMPDIR:-/tmp}/agentos-kernel.XXXXXX")
trap 'rm -rf "$work"' EXIT INT TERM

# The root: busybox, init and the test binaries.
mkdir -p "$work/root/bin" "$work/root/tests"
cp "$(command -v busybox)" "$work/root/bin/busybox"
cp "$here/init" "$work/root/init"
chmod 755 "$work/root/init"
for package in audit/hook; do
	(cd "$root" && CGO_ENABLED=0 go test -c -o "$work/root/tests/$(echo $package | tr / -)" "./$package")
done
pack() { (cd "$work/root" && find . | cpio -o -H newc -R 0:0 --quiet) >"$work/initramfs"; }

status=0
for version in "$@"; do
	kernel=$("$root/tests/machine/fetch.sh" "$version") || { status=1; echo "FAIL kernel $version  not fetched"; continue; }
	image=$(ls "$kernel"/boot/vmlinuz-*)
	module=$(find "$kernel/lib/modules" -name 'overlay.ko*')
	case $module in
	*.xz) xz -dc "$module" >"$work/root/overlay.ko" ;;
	*) cp "$module" "$work/root/overlay.ko" ;;
	esac
	pack
	for row in $rows; do
		case $row in
		A) args="lsm=landlock,lockdown,yama,bpf preempt=voluntary" ;;
		B) args="lsm=landlock,lockdown,yama preempt=voluntary" ;;
		full) args="lsm=landlock,lockdown,yama preempt=full" ;;
		*) say "no row $row"; exit 1 ;;
		esac
		log=$work/$version-$row.log
		start=$(date +%s)
		timeout "$limit" qemu-system-x86_64 -machine pc -cpu max -m 1024 -smp 2 -accel tcg,thread=single \
			-kernel "$image" -initrd "$work/initramfs" -no-reboot -nodefaults -nographic -serial stdio \
			-append "console=ttyS0 quiet panic=-1 random.trust_cpu=on mitigations=off agentos.row=$row agentos.run=${KERNEL_RUN:-.} $args" \
			>"$log" 2>&1 </dev/null || true
		took=$(($(date +%s) - start))
		tr -d '\r' <"$log" | grep -E '^ *(---|===|ok|PASS|FAIL|panic|[a-z_]+_test\.go)' | grep -v '^=== ' | sed "s/^/$version $row: /" || true
		if grep -q '^agentos-kernel: passed' "$log"; then
			echo "ok   kernel $version row $row  ${took}s"
		else
			status=1
			echo "FAIL kernel $version row $row  ${took}s"
			tr -d '\r' <"$log" | tail -n 60 | sed 's/^/    /'
		fi
	done
done
exit $status
