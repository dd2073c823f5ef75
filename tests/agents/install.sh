#!/bin/bash
# install.sh: install the agents that tests/agents runs, in these versions, by npm, once; print the directory of their programs.
# 75 (EX_TEMPFAIL) with one sentence when that is impossible here: no npm, or its registry cannot be reached.
set -eu
dir=${AGENTOS_AGENTS_DIR:-/var/cache/agentos-test/agents}
# What a script of testdata says depends on the tools of its agent, and those change with the version.
want="@anthropic-ai/claude-code@2.1.197 @openai/codex@0.169.0 @google/gemini-cli@0.61.0 opencode-ai@1.18.33"
later() { echo "install: $*" >&2; exit 75; }

mkdir -p "$dir"; chmod 755 "$dir"
exec 9>"$dir/lock"; flock 9
if [ "$(cat "$dir/versions" 2>/dev/null)" != "$want" ]; then
	command -v npm >/dev/null || later "npm is not installed"
	echo "install: $want" >&2
	rm -rf "$dir/new"
	# npm's own home: neither the user's settings nor their cache.
	mkdir -p "$dir/npm"
	# shellcheck disable=SC2086
	HOME=$dir/npm timeout 180 npm install --silent --no-audit --no-fund --no-update-notifier --fetch-retries=1 --fetch-timeout=60000 -g --prefix "$dir/new" $want >&2 9>&- ||
		later "npm did not install the agents; is its registry reachable?"
	rm -rf "$dir/tree"; mv "$dir/new" "$dir/tree"; rm -rf "$dir/npm"
	echo "$want" >"$dir/versions"
fi
echo "$dir/tree/bin"
