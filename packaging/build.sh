#!/bin/bash
# build.sh PROGRAM [go build flags...]: build cmd/PROGRAM into bin/, saying how far it is: a cold build compiles hundreds of packages and takes
# a minute or two. On a terminal that is one line that changes; elsewhere a line every ten seconds. Nothing to compile: one line.
set -u -o pipefail
program=$1; shift
cd "$(dirname "$0")/.." || exit 2
mkdir -p bin
tty=; [ -t 1 ] && [ "${TERM:-dumb}" != dumb ] && tty=1
say="build bin/$program"

# What go says of packages becomes progress; all else it says (downloads, mistakes) is passed on.
show() {
	local line n=0 all=0 at=$SECONDS
	[ -n "$tty" ] && printf '%s' "$say" || echo "$say"
	while IFS= read -r line; do
		case $line in
		*[!A-Za-z0-9_./~-]*)
			[ -z "$tty" ] || printf '\r\033[K'
			printf '%s\n' "$line" >&2
			[ -z "$tty" ] || printf '%s' "$say"
			continue ;;
		esac
		[ $n -gt 0 ] || all=$(go list -deps -f '{{if .Stale}}{{.ImportPath}}{{end}}' "$@" "./cmd/$program" 2>/dev/null | wc -l)
		n=$((n + 1)); [ $n -le "$all" ] || all=$n
		if [ -n "$tty" ]; then
			printf '\r\033[K%s  %d/%d packages' "$say" $n "$all"
		elif [ $((SECONDS - at)) -ge 10 ]; then
			at=$SECONDS; echo "  $n of $all packages"
		fi
	done
	[ -z "$tty" ] || printf '\r\033[K%s\n' "$say"
}

go build -v -trimpath -o "bin/$program" "$@" "./cmd/$program" 2>&1 >/dev/null | show "$@"
