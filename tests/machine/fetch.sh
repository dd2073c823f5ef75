#!/bin/sh
# fetch.sh 6.1|6.12: print the folder of an unpacked Debian cloud kernel (boot/vmlinuz-*, lib/modules/*), downloaded once by apt into
# ~/.cache/agentos/kernels with a source list of its own (6.12 lives in backports), so that the machine's apt set-up is not touched.
set -eu
version=$1
cache=${XDG_CACHE_HOME:-$HOME/.cache}/agentos/kernels
dir=$cache/$version
if ls "$dir"/boot/vmlinuz-* >/dev/null 2>&1; then echo "$dir"; exit 0; fi
arch=$(dpkg --print-architecture)
case $version in
6.1) suite=bookworm; pattern='^linux-image-6\.1\.0-[0-9]+-cloud-'$arch'$' ;;
6.12) suite=bookworm-backports; pattern='^linux-image-6\.12\..*-cloud-'$arch'$' ;;
*) echo "fetch: no Debian kernel $version known; 6.1 or 6.12" >&2; exit 2 ;;
esac
apt=$cache/apt.$version
mkdir -p "$apt/lists/partial" "$apt/archives/partial" "$dir"
{
	echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian $suite main"
	[ "$version" != 6.1 ] || echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian-security bookworm-security main"
} >"$apt/sources.list"
: >"$apt/status"
quiet() { # quiet apt-command...: with the source list, lists and status of our own
	cmd=$1; shift
	"$cmd" -q -o Dir::Etc::sourcelist="$apt/sources.list" -o Dir::Etc::sourceparts=/dev/null -o Dir::State::lists="$apt/lists" \
		-o Dir::State::status="$apt/status" -o Dir::Cache="$apt" -o Dir::Cache::archives="$apt/archives" -o APT::Sandbox::User=root \
		-o Debug::NoLocking=1 "$@"
}
quiet apt-get update >&2
package=$(quiet apt-cache search --names-only "$pattern" | awk '{print $1}' | grep -vE 'unsigned|dbg' | sort -V | tail -n 1)
[ -n "$package" ] || { echo "fetch: no package matches $pattern in $suite" >&2; exit 1; }
echo "fetch: $package" >&2
(cd "$apt" && quiet apt-get download "$package" >&2)
dpkg-deb -x "$apt/$package"_*.deb "$dir"
rm -rf "$apt"
echo "$dir"
