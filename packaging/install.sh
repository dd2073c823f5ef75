#!/bin/sh
# install.sh install|uninstall, from `make install`: bin/agentos to PREFIX/bin, the two root-side programs to PREFIX/libexec/agentos,
# units and tmpfiles beside them, man pages and completions made by the program itself. What root runs must not be writable by others.
set -eu
: "${PREFIX:=/usr/local}" "${DESTDIR:=}"
: "${UNITDIR:=$PREFIX/lib/systemd/system}" "${TMPFILES:=$PREFIX/lib/tmpfiles.d}"
here=$(cd "$(dirname "$0")" && pwd); top=$(dirname "$here")
bin=$DESTDIR$PREFIX/bin; libexec=$DESTDIR$PREFIX/libexec/agentos; units=$DESTDIR$UNITDIR; tmpfiles=$DESTDIR$TMPFILES
man=$DESTDIR$PREFIX/share/man/man1; bash=$DESTDIR$PREFIX/share/bash-completion/completions
zsh=$DESTDIR$PREFIX/share/zsh/site-functions; fish=$DESTDIR$PREFIX/share/fish/vendor_completions.d
sudo=; [ "$(id -u)" = 0 ] || [ -n "$DESTDIR" ] || sudo=sudo
live() { [ -z "$DESTDIR" ] && [ -d /run/systemd/system ]; }

case ${1:-} in
install)
	for f in agentos agentos-helper agentos-init agentos-netd; do [ -x "$top/bin/$f" ] || { echo "install: bin/$f is missing; run make build" >&2; exit 1; }; done
	tmp=$(mktemp -d); trap 'rm -rf "$tmp"' EXIT
	$sudo install -d -m 755 "$bin" "$libexec" "$units" "$tmpfiles" "$man" "$bash" "$zsh" "$fish"
	$sudo install -m 755 "$top/bin/agentos" "$bin/agentos"
	$sudo install -m 755 "$top/bin/agentos-helper" "$top/bin/agentos-init" "$top/bin/agentos-netd" "$libexec/"
	sed "s|@LIBEXEC@|$PREFIX/libexec/agentos|g" "$here/systemd/agentos-helper.service" >"$tmp/agentos-helper.service"
	$sudo install -m 644 "$tmp/agentos-helper.service" "$here/systemd/agentos-helper.socket" "$units/"
	$sudo install -m 644 "$here/tmpfiles/agentos.conf" "$tmpfiles/agentos.conf"
	if "$top/bin/agentos" man "$tmp/man" 2>/dev/null; then $sudo install -m 644 "$tmp"/man/* "$man/"; fi
	for s in bash:$bash/agentos zsh:$zsh/_agentos fish:$fish/agentos.fish; do
		if "$top/bin/agentos" completion "${s%%:*}" >"$tmp/completion" 2>/dev/null; then $sudo install -m 644 "$tmp/completion" "${s#*:}"; fi
	done
	if [ -n "$DESTDIR" ]; then
		echo "staged below $DESTDIR"
	elif live; then
		$sudo systemd-tmpfiles --create "$tmpfiles/agentos.conf"
		$sudo systemctl daemon-reload
		$sudo systemctl enable --now agentos-helper.socket
		echo "installed; the helper starts at the first call (systemctl status agentos-helper.socket)"
	else
		echo "installed; no systemd here: start the helper as root with $PREFIX/libexec/agentos/agentos-helper --foreground"
	fi
	;;
uninstall)
	if live; then $sudo systemctl disable --now agentos-helper.socket agentos-helper.service 2>/dev/null || true; fi
	$sudo rm -f "$bin/agentos" "$libexec/agentos-helper" "$libexec/agentos-init" "$libexec/agentos-netd" "$units/agentos-helper.service" "$units/agentos-helper.socket" \
		"$tmpfiles/agentos.conf" "$man"/agentos.1 "$man"/agentos-*.1 "$bash/agentos" "$zsh/_agentos" "$fish/agentos.fish"
	$sudo rmdir "$libexec" 2>/dev/null || true
	if live; then $sudo systemctl daemon-reload; fi
	echo "removed; /var/lib/agentos (audit logs) and /etc/agentos (org policies) are yours to keep or delete"
	;;
*) echo "usage: install.sh install|uninstall" >&2; exit 2 ;;
esac
