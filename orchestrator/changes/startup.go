package changes

import (
	"strings"

	"github.com/agentos/agentos/policy"
)

// Startup lists what programs of the host obey or run without being asked, and
// where logins lie, below the home: what an agent may have in a home of its own,
// and what must not come out of it by the way. Policies with fewer rules
// (permissive) have no say in it.
var Startup = []struct{ glob, why string }{
	{".{bashrc,bash_profile,bash_login,bash_logout,bash_aliases,profile,zshrc,zprofile,zshenv,zlogin,zlogout,kshrc,mkshrc,cshrc,tcshrc,login,inputrc}", "shells run it"},
	{".config/{fish,nushell,zsh}/**", "shells run it"},
	{".{bash_completion,bash_completion.d/**}", "shells run it"},
	{".{xprofile,xinitrc,xsession,xsessionrc,Xresources,pam_environment}", "a login runs it"},
	{".config/{autostart,systemd,environment.d,plasma-workspace,hypr,sway,i3}/**", "a login runs it"},
	{".local/share/{applications,systemd,dbus-1}/**", "the desktop runs it"},
	{"bin/**", "it is in PATH"},
	{".local/bin/**", "it is in PATH"},
	{".{cargo,npm-global,deno,bun,volta,asdf,rbenv,pyenv,nodenv,goenv}/bin/**", "it is in PATH"},
	{".{asdf,rbenv,pyenv,nodenv,goenv,volta}/shims/**", "it is in PATH"},
	{"go/bin/**", "it is in PATH"},
	{".local/lib/python*/site-packages/**", "Python imports it"},
	{".{pythonrc,pythonrc.py,pystartup,irbrc,pryrc,Rprofile,octaverc,perldb,ghci,node_repl_history}", "an interpreter runs it"},
	{".{gitconfig,gitattributes,hgrc,svnrc}", "git runs what it names"},
	{".config/{git,hg,jj,lazygit}/**", "git runs what it names"},
	{".{npmrc,yarnrc,yarnrc.yml,pnpmrc,bunfig.toml,pypirc,condarc,gemrc,curlrc,wgetrc,netrc,git-credentials}", "it says where programs are fetched from, or logs in"},
	{".config/{pip,uv,npm,yarn,pnpm,gem,composer,nuget,NuGet}/**", "it says where programs are fetched from"},
	{".{cargo,gradle,m2,sbt,ivy2}/{config,config.toml,credentials,credentials.toml,init.gradle,init.d/**,settings.xml,extensions.xml}", "builds obey it"},
	{".{vimrc,gvimrc,exrc,nanorc,emacs,emacs.el,gdbinit,lldbinit,tmux.conf,screenrc,Xmodmap}", "an editor or terminal runs it"},
	{".{vim,emacs.d,vscode,vscode-server,cursor,cursor-server,ssh,gnupg,aws,kube,docker,agentos}/**", "editors run it, or logins lie there"},
	{".config/{nvim,emacs,Code,VSCodium,Cursor,zed,helix,kitty,alacritty,ghostty,wezterm,tmux,agentos,gh,gcloud,containers}/**", "editors and terminals run it, or logins lie there"},
	{".{claude,codex,gemini,opencode,aider,copilot,amp}/**", "agents outside of a jail obey it"},
	{".{claude.json,mcp.json,aider.conf.yml}", "agents outside of a jail obey it"},
	{".config/{claude,codex,gemini,opencode,amp}/**", "agents outside of a jail obey it"},
}

// startup are the rules that Startup comes to for a home.
func startup(home string) []policy.Rule {
	quote := strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`, `{`, `\{`, `}`, `\}`, `,`, `\,`, `!`, `\!`)
	var out []policy.Rule
	for _, s := range Startup {
		out = append(out, policy.Rule{Kind: policy.Protect, Glob: quote.Replace(home) + "/" + s.glob, Layer: -1, Text: s.why})
	}
	return out
}
