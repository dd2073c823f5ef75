#!/bin/sh
# adapter.sh COMMAND...: plugs `agentos run` into the outside corpus (../shared/escape/run.sh --sandbox tests/escape/adapter.sh). Writes a
# policy from the corpus' PROBE_ variables (what its policy.json asks for) once per root, and runs the command under it.
# AGENTOS_BIN: folder of agentos. AGENTOS_SOCKET: the helper's socket. ADAPTER_POLICY: another policy to use.
top=$(cd "$(dirname "$0")/../.." && pwd)
bin=${AGENTOS_BIN:-$top/bin}
policy=${ADAPTER_POLICY:-$PROBE_ROOT/agentos-policy/$PROBE_UID.toml}
if [ ! -e "$policy" ]; then
	mkdir -p "$(dirname "$policy")" 2>/dev/null || { policy=$(mktemp -d)/probe.toml; }
	# Limits below the numbers at which the corpus fails a sandbox.
	cat >"$policy.$$" <<P
version = 1
name = "probe"
extends = ["builtin:strict"]

[files]
deny = [
  "$PROBE_HOME/.ssh/**", "$PROBE_HOME/.aws/**", "$PROBE_HOME/.netrc", "$PROBE_HOME/.kube/**", "$PROBE_HOME/.vault/**",
  "$PROBE_WS/**/.env", "$PROBE_WS/**/*.pem", "$PROBE_WS/**/secrets/**", "$PROBE_WS/**/.aws/**",
]
protect = [
  "$PROBE_WS/.git", "$PROBE_WS/.git/hooks/**", "$PROBE_WS/.git/config", "$PROBE_WS/.git/config.worktree",
  "$PROBE_WS/.claude/**", "$PROBE_WS/.vscode/**", "$PROBE_WS/.idea/**", "$PROBE_WS/.mcp.json", "$PROBE_WS/.envrc",
]

[resources]
memory = "${PROBE_ADAPTER_MEM:-1GB}"
pids = ${PROBE_ADAPTER_PIDS:-256}
open_files = ${PROBE_ADAPTER_FILES:-4096}
tmp = "${PROBE_ADAPTER_TMP:-256MB}"
cpu = "${PROBE_ADAPTER_CPU:-50%}"
disk_write = "${PROBE_ADAPTER_DISK:-1GB}"
P
	mv "$policy.$$" "$policy"
fi
XDG_STATE_HOME=$(dirname "$policy")/notes-$PROBE_UID # what agentos itself keeps (agentos trust): outside of the home that is watched
export XDG_STATE_HOME
exec "$bin/agentos" run --policy "$policy" --workspace "$PROBE_WS" -- "$@"
