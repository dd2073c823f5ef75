#!/bin/bash
# all.sh: what `make test` runs, after tests/setup.sh. Every phase runs even when one before it failed; the last lines are the table
# of phases. Kernels under emulation take one core each for minutes: the first run beside the other phases, the rest when those are through; all
# print at the end.
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

emulated() { # emulated NAME...: make test-NAME of each, one after another; log, exit status and seconds into the cache
	local name t rc
	for name; do
		t=$SECONDS
		case $name in
		kernel-*) make test-kernel KERNEL="${name#kernel-}" ;;
		*) make "test-$name" ;;
		esac >"$cache/$name.log" 2>&1 </dev/null
		rc=$?
		echo "$rc $((SECONDS - t))" >"$cache/$name.rc"
	done
}
lanes=()
beside() { # beside NAME...: the same in the background, in a process group of its own, so that its emulators can be ended with it
	set -m
	emulated "$@" & lanes+=($!)
	set +m
}
trap 'for lane in ${lanes[@]+"${lanes[@]}"}; do kill -- -$lane 2>/dev/null; done' EXIT

phase build make build bin/act
[ -x bin/agentos ] || { echo "all: bin/agentos was not built; nothing to test" >&2; exit 1; }

machines="kernel-6.1 kernel-6.12 tiers"
for name in $machines; do rm -f "$cache/$name.rc"; done
beside kernel-6.1 tiers

phase check make check
phase unit make test-unit
phase root make test-root
phase scripts make test-script
phase escape make escape
phase agents env AGENTOS_SCREENS=no make test-agents

beside kernel-6.12 # the phases above have left a core
wait "${lanes[@]}"; trap - EXIT
for name in $machines; do
	echo; echo "== $name: ran beside other phases"
	cat "$cache/$name.log"
	read -r rc took <"$cache/$name.rc" || rc=1 took=0
	note "$name" "$rc" "$took"
done

echo; echo "== summary"
printf '%s\n' "${table[@]}"
printf '%-12s %-6s %5ds\n' total "$([ $failed = 0 ] && echo ok || echo FAILED)" $((SECONDS - start))
exit $((failed > 0))
