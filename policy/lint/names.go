package lint

// secrets are usual names of what should not be read.
var secrets = []string{
	"${workspace}/.env", "${workspace}/.env.production", "${workspace}/server.key", "${workspace}/tls.pem", "${workspace}/id_ed25519",
	"${workspace}/secrets.yaml", "${workspace}/credentials.json", "${workspace}/.aws/credentials", "${workspace}/.git-credentials", "${workspace}/terraform.tfstate",
	"~/.ssh/id_ed25519", "~/.ssh/id_rsa", "~/.aws/credentials", "~/.kube/config", "~/.netrc", "~/.gnupg/private-keys-v1.d/x.key", "~/.docker/config.json",
	"~/.config/gh/hosts.yml", "~/.npmrc", "~/.pypirc", "~/.git-credentials", "~/.bash_history", "~/.config/gcloud/credentials.db",
	"/etc/shadow", "/etc/ssh/ssh_host_ed25519_key", "/root/.ssh/id_rsa",
}

// executed are usual names of what programs outside of the jail run or obey.
var executed = []string{
	"${workspace}/.git/hooks/pre-commit", "${workspace}/.git/config", "${workspace}/.envrc", "${workspace}/.vscode/tasks.json", "${workspace}/.idea/workspace.xml",
	"${workspace}/.husky/pre-commit", "${workspace}/.pre-commit-config.yaml", "${workspace}/.devcontainer/devcontainer.json", "${workspace}/.claude/settings.json",
	"${workspace}/.mcp.json", "${workspace}/.npmrc", "${workspace}/.cargo/config.toml", "${workspace}/.gdbinit", "${workspace}/.mise.toml",
	"~/.bashrc", "~/.profile", "~/.zshrc", "~/.gitconfig", "~/.ssh/config", "~/.config/systemd/user/x.service", "~/.config/autostart/x.desktop", "~/.local/bin/git",
	"/etc/profile", "/etc/crontab", "/usr/bin/git", "/usr/local/bin/git",
}
