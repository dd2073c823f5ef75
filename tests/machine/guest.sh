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
mount -t tracefs tracefs /sys/kernel/tracing 2>/dev/null
echo '+memory +pids +cpu +io' >/sys/fs/cgroup/cgroup.subtree_control
ip link set lo up; hostname vm; echo "127.0.0.1 localhost vm" >/etc/hosts; : >/etc/resolv.conf
ulimit -n 65536
export AGENTOS_BIN=/mnt/bin AGENTOS_LIBEXEC=/mnt/bin AGENTOS_MACHINE=1
. /mnt/row
export AGENTOS_EXPECT_TIER
echo "MACHINE-BOOT $(uname -r) lsm=$(cat /sys/kernel/security/lsm) $(cat /sys/kernel/debug/sched/preempt 2>/dev/null)"
[ ! -x /mnt/bin/agentos ] || { echo "-- agentos doctor"; timeout 60 /mnt/bin/agentos doctor 2>&1; }
while read -r name binary; do
	cd "/mnt/$name" || continue
	timeout 900 "$binary" -test.timeout 850s -test.v >/tmp/out 2>&1 </dev/null; rc=$?
	ran=$(grep -cE '^\s*--- PASS' /tmp/out); skipped=$(grep -cE '^\s*--- SKIP' /tmp/out)
	[ $rc = 0 ] || { echo "-- $name"; grep -vE '^=== |^\s*--- (PASS|SKIP)' /tmp/out | tail -n 60; }
	grep -A2 -E '^\s*--- SKIP' /tmp/out | grep -vE -- '--- PASS|^=== |^--$' | head -20
	echo "MACHINE-RESULT $name $rc $ran passed, $skipped skipped"
done </mnt/list
grep -oE 'BUG:.*|WARNING: CPU.*|Oops.*' <(dmesg) | head -3 | sed 's/^/MACHINE-SPLAT /'
echo MACHINE-END
sync
echo o >/proc/sysrq-trigger; sleep 30
