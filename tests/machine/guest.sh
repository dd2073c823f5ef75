#!/bin/bash
# guest.sh: runs as pid 1's only child on the booted root. Sets up what systemd would have, runs each line of /mnt/list, powers off.
# Lines that begin with MACHINE- are for run.sh.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 TERM=dumb USER=root
mount -t proc proc /proc; mount -t sysfs sysfs /sys; mountpoint -q /dev || mount -t devtmpfs devtmpfs /dev
mkdir -p /dev/pts /dev/shm /dev/mqueue
mount -t devpts -o gid=5,mode=620,ptmxmode=666 devpts /dev/pts; mount -t tmpfs -o mode=1777 tmpfs /dev/shm; mount -t mqueue mqueue /dev/mqueue
ln -sfn /proc/self/fd /dev/fd; ln -sfn /proc/self/fd/0 /dev/stdin; ln -sfn /proc/self/fd/1 /dev/stdout; ln -sfn /proc/self/fd/2 /dev/stderr
mount -t tmpfs -o mode=755 tmpfs /run
mount -t cgroup2 cgroup2 /sys/fs/cgroup; mount -t bpf bpf /sys/fs/bpf; mount -t securityfs securityfs /sys/kernel/security
mount -t tracefs tracefs /sys/kernel/tracing 2>/dev/null; mount -t debugfs debugfs /sys/kernel/debug 2>/dev/null
echo '+memory +pids +cpu +io' >/sys/fs/cgroup/cgroup.subtree_control
ip link set lo up; hostname vm; echo "127.0.0.1 localhost vm" >/etc/hosts; : >/etc/resolv.conf
ulimit -n 65536
. /mnt/row
export AGENTOS_BIN=/mnt/bin AGENTOS_LIBEXEC=/mnt/bin AGENTOS_MACHINE=1 AGENTOS_EXPECT_TIER AGENTOS_ACTS
echo "MACHINE-BOOT $(uname -r) up $(cut -d. -f1 /proc/uptime)s lsm=$(cat /sys/kernel/security/lsm) preempt=$(cat /sys/kernel/debug/sched/preempt)"
if [ -f /mnt/command ]; then
	. /mnt/command </dev/null 2>&1
else
	# A helper of our own: what the command line starts for root has no time for an emulated machine to load the kernel programs.
	/mnt/bin/agentos-helper --foreground >/tmp/helper 2>&1 & helper=$!
	n=0; while [ ! -S /run/agentos/helper.sock ] && [ $n -lt 600 ] && kill -0 $helper; do sleep 0.2; n=$((n + 1)); done
	echo "-- agentos doctor"
	timeout 120 /mnt/bin/agentos doctor 2>&1
	tier=$(timeout 120 /mnt/bin/agentos doctor --json 2>/dev/null | sed -n 's/^  "tier": "\(.\)".*/\1/p')
	[ "$tier" = "$AGENTOS_EXPECT_TIER" ] || { echo "MACHINE-WRONG doctor says tier ${tier:-nothing}, want $AGENTOS_EXPECT_TIER"; cat /tmp/helper; }
	# The short rows and chosen acts use it for everything. The others start one for each package, as on any machine.
	[ -z "$AGENTOS_ACTS" ] || MACHINE_SHORT=1
	if [ -n "$MACHINE_SHORT" ]; then export AGENTOS_SOCKET=/run/agentos/helper.sock; else kill $helper; wait $helper || echo "MACHINE-WRONG the helper ended with $?"; fi
fi
while read -r name binary args; do
	cd "/mnt/$name" || continue
	began=$(cut -d. -f1 /proc/uptime)
	# shellcheck disable=SC2086
	timeout 1500 "$binary" -test.timeout 1450s -test.v $args 2>&1 </dev/null | tee /tmp/out | sed -unE 's/^ *(=== RUN|--- )/MACHINE-TEST &/p'; rc=${PIPESTATUS[0]}
	ran=$(grep -cE '^\s*--- PASS' /tmp/out); skipped=$(grep -cE '^\s*--- SKIP' /tmp/out)
	[ $rc = 0 ] || { echo "-- $name"; grep -vE '^=== |^\s*--- (PASS|SKIP)' /tmp/out | tail -n 120; }
	grep -A2 -E '^\s*--- SKIP' /tmp/out | grep -vE -- '--- PASS|^=== |^--$' | head -20
	echo "MACHINE-RESULT $name $rc $ran passed, $skipped skipped, $(($(cut -d. -f1 /proc/uptime) - began)) s"
done </mnt/list
[ -z "$MACHINE_SHORT" ] || { kill $helper; wait $helper || echo "MACHINE-WRONG the helper ended with $?"; }
grep -oE 'BUG:.*|WARNING: CPU.*|Oops.*' <(dmesg) | head -3 | sed 's/^/MACHINE-SPLAT /'
echo MACHINE-END
sync
echo o >/proc/sysrq-trigger; sleep 30
