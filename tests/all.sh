#!/bin/bash
# all.sh: what `make test` runs, after tests/setup.sh. Every phase runs even when one before it failed; the last lines are the table
# of phases. The kernel matrix is one core of emulation for minutes, so it runs beside the others and prints at its end.
set -u
cd "$(dirname "$0")/.." || exit 2
cache=tests/.cache; mkdir -p $cache
start=$SECONDS; failed=0; table=()

phase() { # phase NAME COMMAND...: run, print, remember
	local name=$1 t=$SECONDS rc; shift
	echo; echo "== $name: $*"
	"$@" </dev/null; rc=$?
	note "$name" $rc $((SECONDS - t))
}
note() { # note NAME RC SECONDS
	[ "$2" = 0 ] || failed=$((failed + 1))
	table+=("$(printf '%-12s %-6s %5ds' "$1" "$([ "$2" = 0 ] && echo ok || echo FAILED)" "$3")")
}

phase build make build
[ -x bin/agentos ] || { echo "all: bin/agentos was not built; nothing to test" >&2; exit 1; }

kernel=$cache/kernel.log; kt=$SECONDS
make test-kernel >$kernel 2>&1 </dev/null & kpid=$!
trap 'kill $kpid 2>/dev/null' EXIT

phase check make check
phase unit make test-unit
phase root make test-root
phase scripts make test-script
phase escape make escape

echo; echo "== kernel: make test-kernel (ran beside the phases above)"
wait $kpid; rc=$?; trap - EXIT
cat $kernel
note kernel $rc $((SECONDS - kt))

echo; echo "== summary"
printf '%s\n' "${table[@]}"
printf '%-12s %-6s %5ds\n' total "$([ $failed = 0 ] && echo ok || echo FAILED)" $((SECONDS - start))
exit $((failed > 0))
