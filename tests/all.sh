#!/bin/bash
# all.sh: what `make test` runs, after tests/setup.sh. Every phase runs even when one before it failed; the last lines are the table
# of phases. The kernels under emulation take one core for minutes, so they run beside the others, one after another, and print at the end.
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

lane() { # lane NAME...: make test-NAME of each; log, exit status and seconds into the cache
	local name t rc
	for name; do
		t=$SECONDS; make "test-$name" >"$cache/$name.log" 2>&1 </dev/null; rc=$?
		echo "$rc $((SECONDS - t))" >"$cache/$name.rc"
	done
}

phase build make build bin/act
[ -x bin/agentos ] || { echo "all: bin/agentos was not built; nothing to test" >&2; exit 1; }

emulated="kernel tiers"
for name in $emulated; do rm -f "$cache/$name.rc"; done
set -m # a process group of its own, so that its emulators can be ended with it
# shellcheck disable=SC2086
lane $emulated & lane=$!
set +m
trap 'kill -- -$lane 2>/dev/null' EXIT

phase check make check
phase unit make test-unit
phase root make test-root
phase scripts make test-script
phase escape make escape
phase agents env AGENTOS_SCREENS=no make test-agents

wait $lane; trap - EXIT
for name in $emulated; do
	echo; echo "== $name: make test-$name (ran beside the phases above)"
	cat "$cache/$name.log"
	read -r rc took <"$cache/$name.rc" || rc=1 took=0
	note "$name" "$rc" "$took"
done

echo; echo "== summary"
printf '%s\n' "${table[@]}"
printf '%-12s %-6s %5ds\n' total "$([ $failed = 0 ] && echo ok || echo FAILED)" $((SECONDS - start))
exit $((failed > 0))
