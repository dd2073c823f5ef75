#!/bin/bash
# try.sh POLICY [AGENT]: what `make run` does. Without AGENT: a scripted agent (agent.sh) in a scratch repository, then its record.
# With AGENT (a plugin or any command): that agent on WORKSPACE, or the directory make runs in. Not root: sudo starts the helper, nothing else.
set -u
here=$(cd "$(dirname "$0")" && pwd); top=$(cd "$here/../.." && pwd)
policy=$1; shift
agentos=$top/bin/agentos
sudo=; [ "$(id -u)" = 0 ] || sudo=sudo
tmp=$(mktemp -d /tmp/agentos-try.XXXXXX) || exit 1
helper=
cleanup() {
	trap '' INT TERM HUP # make sends a second one
	if [ -n "$helper" ]; then exec 3>&-; wait "$helper"; else rm -rf "$tmp"; fi
}
trap cleanup EXIT
trap 'exit 130' INT; trap 'exit 143' TERM; trap 'exit 129' HUP

# One helper for all the commands below, unless one is running. The scripted agent's has jails and records of its own, which go with it;
# a real agent's record stays where the machine's records are. Root's shell below ends the helper and removes its files when the pipe of this
# script closes, however that comes about: no second password is asked for hours later, and a script that is killed leaves nothing.
# shellcheck disable=SC2016
keeper='tmp=$1; shift
	trap "" INT HUP; trap : TERM
	exec 4<&0
	setsid "$@" </dev/null >"$tmp/helper.log" 2>&1 4<&- & helper=$!
	{ cat; kill $helper; } <&4 >/dev/null 2>&1 &
	wait $helper
	: >"$tmp/ended"
	wait
	rm -rf "$tmp"'
own=; [ $# -gt 0 ] || own="--group agentos-try --state $tmp/state"
if [ -z "${AGENTOS_SOCKET:-}" ] && [ ! -S /run/agentos/helper.sock ]; then
	export AGENTOS_SOCKET=$tmp/helper.sock
	chmod 711 "$tmp"
	if [ -n "$sudo" ]; then
		echo "agentos: starting the helper with sudo (it builds the jails; everything else runs as you)" >&2
		sudo -v || exit 125
	fi
	# shellcheck disable=SC2086
	exec 3> >(exec $sudo sh -c "$keeper" sh "$tmp" "$top/bin/agentos-helper" --foreground --run "$tmp" --socket "$AGENTOS_SOCKET" $own)
	helper=$!
	for _ in $(seq 100); do [ -S "$AGENTOS_SOCKET" ] && break; [ -e "$tmp/ended" ] && break; sleep 0.1; done
	if [ ! -S "$AGENTOS_SOCKET" ]; then echo "agentos: the helper did not start:" >&2; cat "$tmp/helper.log" >&2; exit 125; fi
fi

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
[ -t 1 ] || say() { printf '\n%s\n' "$*"; }

if [ $# -gt 0 ]; then
	"$agentos" run --policy "$policy" --workspace "${WORKSPACE:-.}" "$@"; rc=$?
	[ -n "$helper" ] && [ $rc -lt 125 ] || exit $rc
	# The helper of this run ends with it, and the commands that were hinted at want one: here is what they would say.
	n=$("$agentos" audit show --denied --json | wc -l)
	if [ "$n" -gt 0 ] && [ "$n" -le 20 ]; then
		say "agentos audit show --denied                      (what it was refused, and by which rule)"
		"$agentos" audit show --denied
	fi
	say "the record stays: sudo $agentos audit show; the helper does not, unless you make install"
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
