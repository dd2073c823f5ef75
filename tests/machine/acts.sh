#!/bin/bash
# acts.sh [-n COUNT] [ROW]...: every escape act and the test of hidden names on rows of the matrix (run.sh; default: all), COUNT acts a boot (30), so
# that no boot takes long under emulation. Ends with a table: row, and how many acts were blocked, failed, skipped and not reached, by name.
# ACTS_LOCK: a file to lock around each boot. Exit 1 unless each act was blocked or skipped on each row.
set -eu -o pipefail
cd "$(dirname "$0")/../.."
count=30 rows=()
while [ $# -gt 0 ]; do
	case $1 in
	-n) count=$2; shift ;;
	*) rows+=("$1") ;;
	esac
	shift
done
[ ${#rows[@]} -gt 0 ] || rows=(6.1-lsm 6.1-stock 6.12-lsm 6.12-stock 6.12-preempt)
cache=tests/.cache/machine
mapfile -t acts < <("${AGENTOS_BIN:-bin}/act" --list | cut -f1)
boot() { # boot ROW TEST ACTS: adds what the tests said to the row's results
	local lock=(); [ -z "${ACTS_LOCK:-}" ] || lock=(flock "$ACTS_LOCK")
	AGENTOS_RUN="^$2\$" AGENTOS_ACTS=$3 "${lock[@]}" tests/machine/run.sh --only tests/escape "$1" || true
	tr -d '\r' <"$cache/$1.log" | sed -nE 's/^MACHINE-TEST +--- (PASS|FAIL|SKIP): ([A-Za-z]+\/)?([^ ]+) .*/\1 \3/p' >>"$cache/$1.acts"
}
for row in "${rows[@]}"; do
	: >"$cache/$row.acts"
	for ((i = 0; i < ${#acts[@]}; i += count)); do boot "$row" TestEscapeAsUser "${acts[*]:i:count}"; done
	boot "$row" TestHideAsUser ""
done
bad=0
for row in "${rows[@]}"; do
	line=$row
	for verdict in PASS FAIL SKIP; do
		names=$(for a in "${acts[@]}" TestHideAsUser; do grep -qxF "$verdict $a" "$cache/$row.acts" && echo "$a"; done || true)
		word=blocked; [ $verdict = PASS ] || word=$(tr A-Z a-z <<<$verdict)
		line+="  $word $(grep -c . <<<"$names" || true)"
		[ $verdict = PASS ] || [ -z "$names" ] || line+=" ($(xargs <<<"$names"))"
	done
	lacking=$(for a in "${acts[@]}" TestHideAsUser; do grep -qE "^(PASS|FAIL|SKIP) $a\$" "$cache/$row.acts" || echo "$a"; done)
	[ -z "$lacking" ] || line+="  not reached: $(xargs <<<"$lacking")"
	echo "acts: $line"
	if [ -n "$lacking" ] || grep -q '^FAIL' "$cache/$row.acts"; then bad=1; fi
done
exit $bad
