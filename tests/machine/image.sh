#!/bin/bash
# image.sh OUT: an ext4 root file system made of this machine's own Debian packages (the essential ones, git, gcc, make, python3 and what
# they depend on), the user land that the kernels under test boot. Made again when a package's version changes. Root, or sudo.
set -eu -o pipefail
out=$1
roots="bash coreutils git gcc make libc6-dev libseccomp2 procps iproute2 strace util-linux mount passwd ca-certificates"
for p in python3 python3-minimal; do dpkg -s $p >/dev/null 2>&1 && roots="$roots $p"; done
sudo=; [ "$(id -u)" = 0 ] || sudo=sudo

essential=$(dpkg-query -W -f '${Package} ${Essential}\n' | awk '$2 == "yes" {print $1}')
# shellcheck disable=SC2086
closure=$(apt-cache depends --recurse --installed --no-recommends --no-suggests --no-conflicts --no-breaks --no-replaces --no-enhances $roots $essential |
	grep -E '^[a-z0-9]' | sed 's/:.*//' | sort -u)
# shellcheck disable=SC2086
installed=$({ dpkg-query -W -f '${db:Status-Abbrev} ${Package}:${Architecture} ${Version}\n' $closure 2>/dev/null || true; } | awk '$1 == "ii" {print $2, $3}')
key=$(printf '%s' "$installed" | cat - "$0" | sha256sum | cut -c1-16)
if [ -e "$out" ] && [ "$(cat "$out.key" 2>/dev/null)" = "$key" ]; then exit 0; fi

echo "image: $(wc -l <<<"$installed") packages into $out" >&2
stage=$(mktemp -d "${TMPDIR:-/var/tmp}/agentos-image.XXXXXX")
trap '$sudo rm -rf "$stage"' EXIT
# Debian's paths from before /usr was merged (/bin/x) are looked up through the links /bin, /lib, ...
for d in bin sbin lib lib64; do ln -s "usr/$d" "$stage/$d"; mkdir -p "$stage/usr/$d"; done
awk '{sub(":all$", "", $1); print $1}' <<<"$installed" | xargs dpkg -L | grep -E '^/' | sed -E 's#^/(bin|sbin|lib|lib64)/#/usr/\1/#' |
	grep -vE '^/usr/share/(doc|man|info|locale|lintian|bug)/|^/(dev|proc|sys|run)/' | sort -u |
	while IFS= read -r f; do if [ -L "$f" ] || [ -f "$f" ]; then printf '%s\0' "${f#/}"; fi; done |
	$sudo tar -C / --null --no-recursion -T - -c --ignore-failed-read 2>/dev/null | $sudo tar -C "$stage" -x
# What package scripts made: alternatives, the loader's cache, users.
$sudo tar -C / -c etc/alternatives etc/ld.so.cache etc/passwd etc/group etc/nsswitch.conf etc/ssl 2>/dev/null | $sudo tar -C "$stage" -x --skip-old-files
$sudo mkdir -p "$stage"/{proc,sys,dev,run,tmp,root,home,srv,mnt,opt,etc,var/tmp,var/lib,var/log}
$sudo chmod 1777 "$stage/tmp" "$stage/var/tmp"; $sudo chmod 700 "$stage/root"; $sudo chown 0:0 "$stage" "$stage"/{bin,sbin,lib,lib64,usr,usr/bin,usr/sbin,usr/lib,usr/lib64} -h
$sudo chmod 755 "$stage"
size=$(($($sudo du -sm "$stage" | cut -f1) + 3072))
rm -f "$out" "$out.key"; truncate -s "${size}M" "$out"
$sudo env PATH="$PATH:/usr/sbin:/sbin" mkfs.ext4 -q -F -O ^has_journal -m 0 -d "$stage" "$out"
[ -z "$sudo" ] || $sudo chown "$(id -u)" "$out"
echo "$key" >"$out.key"
