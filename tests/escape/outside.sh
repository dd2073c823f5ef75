#!/bin/bash
# outside.sh [options of run.sh]: run the outside corpus (../shared/escape beside this repository, or AGENTOS_ESCAPE_CORPUS) against
# `agentos run` through adapter.sh. Absent, it says so and passes. The helper is started inside the corpus' own namespaces, because paths
# and networks of the jails' owners are there.
set -u
top=$(cd "$(dirname "$0")/../.." && pwd)
corpus=${AGENTOS_ESCAPE_CORPUS:-$top/../shared/escape}
if [ ! -x "$corpus/run.sh" ]; then
	echo "outside: skipped; wanted a corpus at $corpus, got none (AGENTOS_ESCAPE_CORPUS names another place)"
	exit 0
fi
export AGENTOS_BIN=$top/bin
dir=$(mktemp -d /run/agentos-outside.XXXXXX 2>/dev/null || mktemp -d) && chmod 755 "$dir"
export OUTSIDE_DIR=$dir AGENTOS_SOCKET=$dir/run/helper.sock
trap 'rm -rf "$dir"' EXIT
mkdir -p "$dir/run" "$dir/state" "$dir/org"
cat >"$dir/setup.sh" <<'E2'
#!/bin/sh
# inside the corpus' namespaces: the helper, and the record as one growing file
mkdir -p "$PROBE_ROOT/agentos-policy" && chmod 777 "$PROBE_ROOT/agentos-policy"
"$AGENTOS_BIN/agentos-helper" --foreground --socket "$AGENTOS_SOCKET" --run "$OUTSIDE_DIR/run" --state "$OUTSIDE_DIR/state" --org "$OUTSIDE_DIR/org" --group agentos-outside \
	</dev/null >"$OUTSIDE_DIR/helper.log" 2>&1 &
echo $! >"$OUTSIDE_DIR/helper.pid"
n=0; while [ ! -S "$AGENTOS_SOCKET" ] && [ $n -lt 100 ]; do sleep 0.1; n=$((n + 1)); done
[ -S "$AGENTOS_SOCKET" ] || { cat "$OUTSIDE_DIR/helper.log" >&2; exit 1; }
: >"$PROBE_ROOT/audit.jsonl"
"$OUTSIDE_DIR/follow.sh" </dev/null >>"$PROBE_ROOT/audit.jsonl" 2>"$OUTSIDE_DIR/follow.log" &
echo $! >"$OUTSIDE_DIR/follow.pid"
E2
cat >"$dir/follow.sh" <<'E2'
#!/bin/sh
# every session that appears is followed to its end; each has its own follower, so that no record waits for another session
seen=" "
while :; do
	for s in $("$AGENTOS_BIN/agentos" ps --all --json 2>/dev/null | sed -n 's/.*"id": *"\([^"]*\)".*/\1/p'); do
		case $seen in *" $s "*) ;; *) seen="$seen$s "; "$AGENTOS_BIN/agentos" audit show --json --follow "$s" & ;; esac
	done
	sleep 0.05
done
E2
cat >"$dir/teardown.sh" <<'E2'
#!/bin/sh
for p in follow helper; do kill "$(cat "$OUTSIDE_DIR/$p.pid")" 2>/dev/null; done
exit 0
E2
chmod +x "$dir"/*.sh
sudo=; [ "$(id -u)" = 0 ] || sudo="sudo -E"
# shellcheck disable=SC2086
$sudo "$corpus/run.sh" --sandbox "env AGENTOS_SOCKET=$AGENTOS_SOCKET AGENTOS_BIN=$AGENTOS_BIN $top/tests/escape/adapter.sh" --setup "$dir/setup.sh" \
	--teardown "$dir/teardown.sh" --audit-log '$PROBE_ROOT/audit.jsonl' --json "$dir/result.json" "$@"
rc=$?
[ $rc = 0 ] && exit 0
failed=$(python3 -c 'import json,sys; print(" ".join(r["id"] for r in json.load(open(sys.argv[1])) if r["verdict"] in ("ESCAPED","ERROR","FAIL")))' "$dir/result.json")
echo "outside: failed: $failed"
# One probe counts the corpus' own closing of a connection as an escape. It is excused only while it fails in the same way for a wrapper
# that closes every descriptor before it runs the probe.
if [ "$failed" = file-inherited-fd ]; then
	printf 'import os, sys\nos.closerange(3, 65536)\nos.execvp(sys.argv[1], sys.argv[1:])\n' >"$dir/closer.py"
	if ! $sudo "$corpus/run.sh" --sandbox "/usr/bin/python3 $dir/closer.py" --only file-inherited-fd >"$dir/control.log" 2>&1 &&
		grep -q '^ESCAPED.*file-inherited-fd.*0 extra descriptors' "$dir/control.log"; then
		echo "outside: file-inherited-fd fails without any sandbox and with every descriptor closed too: excused"
		exit 0
	fi
fi
echo "outside: the helper's last words:"; tail -n 5 "$dir/helper.log" 2>/dev/null
exit $rc
