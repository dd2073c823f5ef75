#!/bin/sh
# fetch.sh 6.1|6.12: print the folder of an unpacked Debian cloud kernel (boot/vmlinuz-*, lib/modules/*), downloaded once: by this machine's
# apt where its lists know the series, else with a source list of our own, so that the machine's apt set-up is not touched.
set -eu
version=$1
if [ "$(id -u)" = 0 ]; then cache=/var/cache/agentos-test; else cache=${XDG_CACHE_HOME:-$HOME/.cache}/agentos-test; fi
dir=$cache/kernels/$version
say() { echo "fetch: $*" >&2; }
mkdir -p "$cache/kernels"
exec 9>"$cache/kernels/.lock"; flock 9 # make test boots kernels from two lanes
if [ -e "$dir/.complete" ]; then echo "$dir"; exit 0; fi
arch=$(dpkg --print-architecture)
series=$(echo "$version" | sed 's/\./\\./g')
case $version in
6.1) suites="bookworm bookworm-security" ;;
6.12) suites="bookworm-security bookworm-backports" ;;
*) say "no Debian kernel $version known; 6.1 or 6.12"; exit 2 ;;
esac
work=$cache/kernels/work.$version
rm -rf "$dir" "$work"; mkdir -p "$work/lists/partial" "$work/archives/partial" "$work/deb" "$dir"
own= # non-empty: the lists of our own are asked
quiet() { # quiet apt-command...
	cmd=$1; shift
	[ -z "$own" ] || set -- -o Dir::Etc::sourcelist="$work/sources.list" -o Dir::Etc::sourceparts=/dev/null -o Dir::State::lists="$work/lists" \
		-o Dir::State::status="$work/status" -o Dir::Cache="$work" -o Dir::Cache::archives="$work/archives" "$@"
	"$cmd" -q -o Debug::NoLocking=1 -o APT::Sandbox::User=root "$@" </dev/null
}
download() { # the newest image of the series, into work/deb
	package=$(quiet apt-cache search --names-only "^linux-image-$series\\.[0-9].*-cloud-$arch\$" | cut -d' ' -f1 | sort -V | tail -n 1)
	[ -n "$package" ] || { say "no linux-image-$version.*-cloud-$arch in ${own:-the apt lists of this machine}"; return 1; }
	say "$package"
	(cd "$work/deb" && quiet apt-get download "$package" >&2) || { say "$package cannot be downloaded"; return 1; }
}
if ! download; then
	own=$suites; key=/usr/share/keyrings/debian-archive-keyring.gpg
	for suite in $suites; do
		case $suite in *-security) at=debian-security ;; *) at=debian ;; esac
		echo "deb [signed-by=$key] http://deb.debian.org/$at $suite main"
	done >"$work/sources.list"
	: >"$work/status"
	quiet apt-get update >&2
	download
fi
dpkg-deb -x "$work"/deb/linux-image-*.deb "$dir"
rm -rf "$work"
: >"$dir/.complete"
echo "$dir"
