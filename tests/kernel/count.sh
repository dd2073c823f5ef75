#!/bin/bash
# count.sh [6.1] [6.12]: what the kernel programs cost, in instructions. Boots Debian kernels under QEMU with -icount shift=0: one
# instruction of the guest is one nanosecond of its clock, so a clock in the guest counts instructions and the host's load does not
# matter. Rows A (bpf in lsm=) and B (fmod_ret). Prints a table for each. KERNEL_ROWS="A B" chooses rows.
set -eu -o pipefail
cd "$(dirname "$0")/../.."
[ $# -gt 0 ] || set -- 6.1 6.12
for tool in qemu-system-x86_64 busybox cpio gcc go; do
	command -v "$tool" >/dev/null || { echo "count: $tool is missing; run tests/setup.sh test" >&2; exit 1; }
done
work=$(mktemp -d "${TMPDIR:-/tmp}/agentos-count.XXXXXX")
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/root/bin"
cp "$(command -v busybox)" "$work/root/bin/busybox"
gcc -O2 -static -Wall -Wextra -o "$work/root/bin/calls" tests/kernel/calls.c
CGO_ENABLED=0 go build -o "$work/root/bin/count" ./tests/kernel/count
cat >"$work/root/init" <<'I'
#!/bin/busybox sh
export PATH=/bin
/bin/busybox --install -s /bin
mkdir -p /proc /sys /dev /tmp /run
mount -t proc proc /proc; mount -t sysfs sysfs /sys; mount -t devtmpfs dev /dev; mount -t tmpfs tmpfs /tmp
mount -t cgroup2 cgroup2 /sys/fs/cgroup; mount -t bpf bpf /sys/fs/bpf; mount -t securityfs securityfs /sys/kernel/security
uname -r
count && echo COUNT-END
poweroff -f
I
chmod 755 "$work/root/init"
(cd "$work/root" && find . | cpio -o -H newc -R 0:0 --quiet) >"$work/initramfs"

table() { # table LOG: calls as columns, contestants as rows, each with its ratio to the first row
	tr -d '\r' <"$1" | awk -F'\t' '
	/^COUNT / { name = substr($1, 7); if (!(name in seen)) { seen[name] = 1; order[++n] = name }
		if (!($2 in col)) { col[$2] = 1; cols[++m] = $2 } v[name, $2] = $3 }
	/^STATS / { stats[++s] = $0 }
	END {
		printf "%-36s", "instructions"; for (j = 1; j <= m; j++) printf "%18s", cols[j]; print ""
		for (i = 1; i <= n; i++) { printf "%-36s", order[i]
			for (j = 1; j <= m; j++) printf "%11.0f %6.3f", v[order[i], cols[j]], v[order[i], cols[j]] / v[order[1], cols[j]]; print "" }
	}'
}

status=0
for version in "$@"; do
	kernel=$(tests/machine/fetch.sh "$version")
	for row in ${KERNEL_ROWS:-A B}; do
		lsm=landlock,lockdown,yama,integrity,apparmor
		[ "$row" = B ] || lsm=$lsm,bpf
		log=$work/$version-$row.log
		timeout "${KERNEL_TIMEOUT:-900}" qemu-system-x86_64 -machine pc -cpu max,la57=off,cx16=off -m 1024 -smp 1 -accel tcg,thread=single -icount shift=0,sleep=off \
			-kernel "$(ls "$kernel"/boot/vmlinuz-*)" -initrd "$work/initramfs" -no-reboot -nodefaults -nographic -serial stdio \
			-append "console=ttyS0 quiet panic=-1 random.trust_cpu=on mitigations=off preempt=voluntary clocksource=tsc tsc=reliable lsm=$lsm" >"$log" 2>&1 </dev/null || true
		echo; echo "kernel $(basename "$kernel"/lib/modules/*), tier $(sed -n 's/^TIER \([A-D]\).*/\1/p' "$log")"
		table "$log"
		tr -d '\r' <"$log" | sed -n 's/^LOAD //p'
		if ! grep -q '^COUNT-END' "$log"; then
			status=1; echo "count: $version $row did not finish; the end of its log:"; tail -n 30 "$log"
		elif [ -n "${KERNEL_VERBOSE:-}" ]; then
			grep '^STATS' "$log"
		fi
	done
done
exit $status
