#!/bin/bash
# try.sh POLICY [AGENT]: what `make run` does. Without AGENT: a scripted agent (agent.sh) in a scratch repository, then its record.
# With AGENT (a plugin or any command): that agent on WORKSPACE, or the directory make runs in. Not root: sudo starts the helper, nothing else.
set -u
here=$(cd "$(dirname "$0")" && pwd); top=$(cd "$here/../.." && pwd)
policy=$1; shift
agentos=$top/bin/agentos
tmp=$(mktemp -d /tmp/agentos-try.XXXXXX) || exit 1
helper=
cleanup() {
	if [ -n "$helper" ]; then
		if [ "$(id -u)" = 0 ]; then kill "$helper" 2>/dev/null; else sudo kill "$(cat "$tmp/helper.pid" 2>/dev/null)" 2>/dev/null; fi
		wait "$helper" 2>/dev/null
	fi
	rm -rf "$tmp" 2>/dev/null || sudo rm -rf "$tmp"
}
trap cleanup EXIT

# One helper for all the commands below, unless one is running. The scripted agent's has jails and records of its own, which go with it;
# a real agent's record stays where the machine's records are.
own=; [ $# -gt 0 ] || own="--group agentos-try --state $tmp/state"
if [ -z "${AGENTOS_SOCKET:-}" ] && [ ! -S /run/agentos/helper.sock ]; then
	export AGENTOS_SOCKET=$tmp/helper.sock
	chmod 711 "$tmp"
	if [ "$(id -u)" = 0 ]; then
		"$top/bin/agentos-helper" --foreground $own --run "$tmp" --socket "$AGENTOS_SOCKET" >"$tmp/helper.log" 2>&1 & helper=$!
	else
		echo "agentos: starting the helper with sudo (it builds the jails; everything else runs as you)" >&2
		sudo -v || exit 125
		sudo sh -c 'echo $$ >"$1"; helper=$2 socket=$3 run=$4; shift 4; exec "$helper" --foreground --run "$run" --socket "$socket" "$@"' sh "$tmp/helper.pid" "$top/bin/agentos-helper" "$AGENTOS_SOCKET" "$tmp" $own >"$tmp/helper.log" 2>&1 & helper=$!
	fi
	for _ in $(seq 100); do [ -S "$AGENTOS_SOCKET" ] && break; kill -0 "$helper" 2>/dev/null || break; sleep 0.1; done
	if [ ! -S "$AGENTOS_SOCKET" ]; then echo "agentos: the helper did not start:" >&2; cat "$tmp/helper.log" >&2; exit 125; fi
fi

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
[ -t 1 ] || say() { printf '\n%s\n' "$*"; }

if [ $# -gt 0 ]; then
	"$agentos" run --policy "$policy" --workspace "${WORKSPACE:-.}" "$@"; rc=$?
	[ -n "$helper" ] && [ $rc -lt 125 ] || exit $rc
	# The helper of this run ends with it, and the commands that were hinted at want one: here is what they would say.
	say "agentos audit show --denied                      (what it was refused: the last lines)"
	"$agentos" audit show --denied | tail -n 20
	say "the record stays: \`sudo bin/agentos audit show\` has all of it; \`sudo make install\` sets up a helper that stays, too"
	exit $rc
fi

repo=$tmp/scratch
mkdir "$repo"; git -c init.defaultBranch=main init -q "$repo"
git -C "$repo" config user.name Developer; git -C "$repo" config user.email dev@example.invalid
printf '#include <stdio.h>\nint main(void) { puts("helo"); return 0; }\n' >"$repo/hello.c"
printf 'hello: hello.c\n\tcc -o hello hello.c\n' >"$repo/Makefile"
printf 'API_KEY=a-secret-that-must-not-leave\n' >"$repo/.env"; printf '.env\nhello\n' >"$repo/.gitignore"
git -C "$repo" add -A; git -C "$repo" commit -qm 'start'
cp "$here/agent.sh" "$repo/agent.sh"
chmod 755 "$tmp"

say "agentos run --policy $policy -- sh agent.sh      (in a scratch repository with a secret in .env)"
"$agentos" run --policy "$policy" --workspace "$repo" --name try -- sh agent.sh; rc=$?
say "what it left in the repository, seen from outside (exit code $rc)"
git -C "$repo" --no-pager log --oneline --format='  %h %an: %s'; git -C "$repo" status --short
if [ -e "$HOME/agentos-was-here" ] || [ -e /var/tmp/agentos-was-here ]; then echo "ESCAPED: the agent wrote outside its workspace"; rc=1; fi
say "agentos audit show --denied                      (what it was refused, and by which rule)"
"$agentos" audit show --denied try || rc=1
say "agentos audit verify                             (the record is whole and signed)"
"$agentos" audit verify try || rc=1
exit $rc
