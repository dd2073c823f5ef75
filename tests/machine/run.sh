#!/bin/bash
# run.sh [6.1|6.12|ROW|all]: boot whole machines under QEMU (KVM where it is real, else emulation): a Debian kernel, a root file system of
# Debian packages, cgroup v2; run the tests that need root, the escape acts and `agentos doctor` there, on each row of the matrix below.
# tests/kernel does the same for the BPF programs alone, in seconds. Exit 1 when a program failed or a row did not finish.
set -eu -o pipefail
cd "$(dirname "$0")/../.."
want=${1:-all}
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
command -v qemu-system-x86_64 >/dev/null || { echo "machine: qemu-system-x86_64 is missing; run tests/setup.sh test" >&2; exit 1; }
PATH=$PATH:/usr/sbin:/sbin

payload() { # the programs and each package's testdata, as the disk /mnt of the guest
	rm -rf "$cache/payload"; mkdir -p "$cache/payload/bin"
	cp "$bin/agentos" "$bin/agentos-helper" "$bin/agentos-init" "$cache/payload/bin/" || { echo "machine: bin/ is not complete; run make build" >&2; exit 1; }
	cp tests/machine/guest.sh "$cache/payload/"
	[ ! -x "$bin/act" ] || cp "$bin/act" "$cache/payload/bin/"
	: >"$cache/payload/list"
	local pkg name
	for pkg in $(grep -rlE '^//go:build .*\broot\b' --include='*_test.go' . | xargs -r -n1 dirname | sort -u | sed 's#^\./##'); do
		case $pkg in tests/script | tests/bench) continue ;; esac # need nothing of the kernel that the others do not
		name=${pkg//\//-}
		mkdir -p "$cache/payload/$pkg"
		go test -c -tags root -o "$cache/payload/bin/$name.test" "./$pkg" || exit 1
		[ ! -d "$pkg/testdata" ] || cp -r "$pkg/testdata" "$cache/payload/$pkg/"
		[ -x "$cache/payload/bin/$name.test" ] && echo "$pkg /mnt/bin/$name.test" >>"$cache/payload/list"
	done
}

initramfs() { # initramfs KERNEL OUT: busybox, disk and overlay modules in loading order, and an init that switches to the disk
	local dir=$1 out=$2 version tmp n=0 ko
	[ ! -e "$out" ] || [ "$0" -nt "$out" ] || return 0
	version=$(basename "$dir"/lib/modules/*)
	tmp=$(mktemp -d); mkdir -p "$tmp"/{bin,mod,proc,sys,dev,root}
	cp /bin/busybox "$tmp/bin/busybox"
	depmod -b "$dir" "$version"
	for m in virtio_pci virtio_blk overlay vsock dummy; do
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
	rm -rf "$tmp"
}

# Paravirtual KVM (kvm-pvm on rented machines) starts these guests and then makes no progress. QEMU 7.2 emulates cmpxchg16b wrongly under
# interrupts, which crashes the slab allocator of 6.12 at random; without the feature the kernel does not use it.
accel=tcg,thread=multi cpu=max,la57=off,cx16=off
if [ -w /dev/kvm ] && { [ -d /sys/module/kvm_intel ] || [ -d /sys/module/kvm_amd ]; }; then accel=kvm cpu=host; fi
payload
tests/machine/image.sh "$cache/root.ext4"
failed=0
while read -r name kernel tier cmdline; do
	[ -n "$name" ] || continue
	[ "$want" = all ] || [ "$want" = "$kernel" ] || [ "$want" = "$name" ] || continue
	dir=$(tests/machine/fetch.sh "$kernel")
	initramfs "$dir" "$cache/$kernel.cpio.gz"
	echo "AGENTOS_EXPECT_TIER=$tier" >"$cache/payload/row"
	rm -f "$cache/payload.ext4"; truncate -s 2G "$cache/payload.ext4"
	mkfs.ext4 -q -F -O ^has_journal -m 0 -E root_owner=0:0 -d "$cache/payload" "$cache/payload.ext4"
	log=$cache/$name.log; : >"$log"; start=$SECONDS
	echo "machine: $name (kernel $kernel, $accel, tier $tier expected)"
	timeout -k 5 "${MACHINE_TIMEOUT:-1200}" qemu-system-x86_64 -accel $accel -machine pc -cpu $cpu -smp 2 -m 3072 -display none -no-reboot -monitor none \
		-nic none -serial "file:$log" -kernel "$(ls "$dir"/boot/vmlinuz-*)" -initrd "$cache/$kernel.cpio.gz" \
		-drive file="$cache/root.ext4",format=raw,if=virtio,snapshot=on -drive file="$cache/payload.ext4",format=raw,if=virtio,snapshot=on \
		-append "console=ttyS0 quiet loglevel=3 panic=-1 $cmdline" </dev/null || true
	tr -d '\r' <"$log" | sed -n '/^MACHINE-BOOT/,/^MACHINE-END/p' | sed 's/^/  /'
	if ! grep -q '^MACHINE-END' "$log"; then echo "  $name did not finish; the end of $log:"; tail -n 20 "$log"; failed=1; fi
	if tr -d '\r' <"$log" | awk '/^MACHINE-RESULT/ && $3 != 0 {bad = 1} /^MACHINE-SPLAT/ {bad = 1} END {exit !bad}'; then failed=1; fi
	echo "machine: $name took $((SECONDS - start)) s"
done <<<"$matrix"
if [ $failed = 0 ]; then echo "machine: ok"; else echo "machine: FAILED"; fi
exit $failed
