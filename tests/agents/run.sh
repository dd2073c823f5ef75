#!/bin/bash
# run.sh [TEST FLAGS...]: install the agents, once, and run tests/agents against the built programs. Where they cannot be installed this says
# so and passes: it is no fault of AgentOS. AGENTOS_AGENTS=require makes it fail.
set -u
cd "$(dirname "$0")/../.." || exit 2
sudo=; [ "$(id -u)" = 0 ] || sudo="sudo -E env PATH=$PATH"
programs=$($sudo tests/agents/install.sh); rc=$?
if [ $rc = 75 ] && [ "${AGENTOS_AGENTS:-}" != require ]; then
	echo "agents: SKIPPED: wanted Claude Code, Codex, Gemini CLI and OpenCode, got none of them"
	exit 0
fi
[ $rc = 0 ] || exit 1
exec="-exec=env"; [ -z "$sudo" ] || exec="-exec=$sudo"
AGENTOS_BIN=$PWD/bin AGENTOS_AGENTS_BIN=$programs exec go test -tags root -count=1 "$exec" ./tests/agents "$@"
