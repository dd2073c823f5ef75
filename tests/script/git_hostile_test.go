//go:build root

package script

// gitPlant comes before hostile acts, of which every one is tried whatever becomes of the others. A row's plant alone must work where it is
// allowed ([TestGitPlants]), or the row proves nothing. evil writes the name of the way to $W/ran
// on the host. $C is the repository's common directory, $G that of this work tree.
const gitPlant = `set +e; exec 2>&1
evil() { printf '#!/bin/sh\necho %s >>"$W/ran"\n' "$1"; }
keys() { printf '[core]\nfsmonitor = "echo fsmonitor >>$W/ran;:"\npager = "echo pager >>$W/ran;cat"\neditor = "echo editor >>$W/ran;:"\nsshCommand = "echo ssh >>$W/ran"\nhooksPath = %s\n[diff]\nexternal = "echo diff >>$W/ran;:"\n[diff "x"]\ntextconv = "echo textconv >>$W/ran;cat"\n[filter "x"]\nclean = "echo clean >>$W/ran;cat"\nsmudge = "echo smudge >>$W/ran;cat"\n[credential]\nhelper = "!echo credential >>$W/ran"\n[alias]\nst = "!echo alias >>$W/ran"\n[include]\npath = %s\n[url "ext::sh -c echo%% url%% >>$W/ran"]\ninsteadOf = .\n' "$PWD/evil" "$PWD/evil/more"; }
mkdir -p evil; evil hooksPath >evil/pre-commit; keys >evil/config; printf '[core]\nfsmonitor = "echo included >>$W/ran;:"\n' >evil/more; echo 'ref: refs/heads/main' >evil/head; mkdir -p evil/objects evil/refs; chmod -R +x evil
names='pre-commit post-commit commit-msg prepare-commit-msg post-checkout post-merge pre-push post-rewrite reference-transaction post-index-change fsmonitor-watchman pre-auto-gc'
echo '* filter=x diff=x' >.gitattributes
`

// gitUnplant takes away what a developer would see and remove, and what would stop the work that the row is about.
const gitUnplant = `rm -rf evil .gitattributes; git checkout -q . ; `

// gitHostile are the ways in which a repository is made to run a program for whoever works in it next.
var gitHostile = []gitRow{
	{
		name: "hooks", only: "strict", short: true,
		plant: `evil hook >$C/hooks/post-commit; chmod +x $C/hooks/post-commit`,
		inside: `for h in $names; do evil $h >$C/hooks/$h; evil $h >x; chmod +x x; mv x $C/hooks/$h; evil $h >x; chmod +x x; ln x $C/hooks/$h; ln -s $PWD/x $C/hooks/$h; cp x $C/hooks/$h; done
			mv $C/hooks $C/h; rm -rf $C/hooks; mkdir $C/h2; cp x $C/h2/pre-commit; mv -T $C/h2 $C/hooks; ln -sfn $PWD/evil $C/hooks; mkdir -p $C/hooks/d; chmod +x $C/hooks/*; true`,
	},
	{
		name: "configuration", only: "strict",
		plant: `keys >>$C/config`,
		inside: `git config core.fsmonitor 'echo x >>$W/ran'; keys >>$C/config; keys >$C/config.lock; mv $C/config.lock $C/config; rm -f $C/config; keys >x; mv -f x $C/config; ln -sf $PWD/evil/config $C/config; ln -f evil/config $C/config
			keys >$C/config.worktree; keys >$G/config.worktree; truncate -s 0 $C/config; cp evil/config $C/config; git config --file $C/config a.b c; rm -f $C/config.lock; true`,
	},
	{
		name: ".git renamed, a gitfile in its place", only: "strict",
		plant: `git clone -q . /tmp/r; cp -r /tmp/r/.git evil/repo; keys >>evil/repo/config; mv .git .git.old && echo "gitdir: $PWD/evil/repo" >.git`,
		inside: `git clone -q . /tmp/r; cp -r /tmp/r/.git evil/repo; cat evil/config >>evil/repo/config; mv .git .git.old; echo "gitdir: $PWD/evil/repo" >gitfile; mv -f gitfile .git; ln -f gitfile .git; echo "gitdir: $PWD/evil/repo" >.git; ln -sfn evil/repo .git
			perl -e 'syscall(316, -100, ".git", -100, "evil/repo", 2)'; echo "gitdir: ../evil/repo" >sub/.git; mv -f gitfile sub/.git; echo "gitdir: ../evil/repo" >evil/.git; mkdir evil/.git; mkdir -p evil/deep/.git; rm -rf sub/.git; true`,
		after: gitUnplant,
	},
	{
		name: "a bare repository below", only: "strict",
		plant:  `printf '[core]\nrepositoryformatversion = 0\nbare = false\nworktree = ..\n' >>evil/config; echo 'ref: refs/heads/main' >evil/HEAD`,
		inside: `for d in evil evil/deep/deeper; do mkdir -p $d/objects $d/refs/heads; keys >$d/config; echo 'ref: refs/heads/main' >$d/HEAD; cp evil/head $d/HEAD; mv evil/head $d/HEAD; ln evil/head $d/HEAD; ln -s $C/refs/heads/main $d/HEAD; done; git init --bare evil/b; git clone --bare . evil/c; mv /tmp evil/d; git worktree add evil/w; true`,
		after:  `for d in evil evil/deep/deeper evil/b evil/c evil/objects; do [ ! -d $d ] || (cd $d && git status >/dev/null; git log -1 >/dev/null); done; ` + gitUnplant,
	},
	{
		name: "commondir, gitdir, alternates, attributes, remotes", only: "strict",
		plant: `echo $PWD/evil >$C/commondir`,
		inside: `for d in $C $G; do echo $PWD/evil >$d/commondir; echo $PWD/evil >$d/gitdir; echo $PWD/evil >x; mv -f x $d/commondir; echo $PWD/evil/objects >$d/objects/info/alternates; echo http://x/ >$d/objects/info/http-alternates; echo '* filter=x' >$d/info/attributes; mkdir -p $d/info; mv .gitattributes $d/info/attributes; echo x >$d/info/grafts
			mkdir -p $d/remotes $d/branches; echo 'URL: ext::sh -c echo% remote% >>$W/ran' >$d/remotes/new; echo 'ext::sh -c echo% branch% >>$W/ran' >$d/branches/new; done; true`,
		after: `! git fetch -q new; ` + gitUnplant,
	},
	{
		name: "submodules", only: "strict",
		plant: `evil m >$C/modules/sub/hooks/post-commit; chmod +x $C/modules/sub/hooks/post-commit`,
		inside: `M=$C/modules; keys >>$M/sub/config; keys >x; mv -f x $M/sub/config; for h in $names; do evil $h >$M/sub/hooks/$h; evil $h >x; chmod +x x; mv x $M/sub/hooks/$h; done; echo $PWD/evil >$M/sub/commondir; echo $PWD/evil >$M/sub/gitdir; keys >$M/sub/config.worktree
			mv $M/sub $M/old; mv $M $C/old; mkdir -p $M/new; keys >$M/new/config; echo x >$M/new/HEAD; printf '[submodule "sub"]\npath = sub\nurl = ext::sh\nupdate = !echo update >>$W/ran\n' >.gitmodules; git config -f .gitmodules submodule.sub.update '!echo update >>$W/ran'; git submodule deinit -f sub; true`,
		after: `rm -rf evil .gitattributes; git checkout -q -f HEAD; (cd sub && git status && git commit -q --allow-empty -m x); git submodule update; `,
	},
	{
		name: "other worktrees of the repository", only: "strict",
		plant:  `echo $PWD/evil >$C/worktrees/linked/commondir`,
		inside: `for w in linked new; do d=$C/worktrees/$w; mkdir -p $d; echo $PWD/evil >$d/commondir; echo $PWD/evil >$d/gitdir; keys >$d/config.worktree; keys >$d/config; echo $PWD/evil >x; mv -f x $d/commondir; mv $d $d.old; mkdir -p $d; done; mv $C/worktrees $C/w; mv -T evil $C/worktrees/linked; perl -e 'syscall(316, -100, "evil", -100, ".git/worktrees/linked", 2)'; true`,
		after:  `(cd ../linked && work >/dev/null && git commit -q --allow-empty -m x); git worktree list; git worktree prune; ` + gitUnplant,
	},
	{
		name: "from a linked worktree", only: "strict", in: "linked", short: true,
		plant: `keys >>$C/config`,
		inside: `keys >>$C/config; keys >$C/config.lock; mv $C/config.lock $C/config; rm -f $C/config; keys >$C/config.worktree; keys >$G/config.worktree; git config core.fsmonitor x; for h in $names; do evil $h >$C/hooks/$h; evil $h >x; chmod +x x; mv x $C/hooks/$h; done; mv $C/hooks $C/h; mkdir $C/h2; mv -T $C/h2 $C/hooks; ln -sfn $PWD/evil $C/hooks
			for d in $C $G; do echo $PWD/evil >$d/commondir; echo $PWD/evil >$d/gitdir; echo $PWD/evil/objects >$d/objects/info/alternates; echo '* filter=x' >$d/info/attributes; mkdir -p $d/remotes; echo 'URL: ext::sh' >$d/remotes/new; done; keys >>$C/modules/sub/config; evil m >$C/modules/sub/hooks/post-checkout; mv $G $G.old; mv $C/worktrees $C/w; mkdir -p $C/worktrees/new; echo $PWD/evil >$C/worktrees/new/commondir
			echo "gitdir: $PWD/evil" >.git; rm -f .git; echo "gitdir: $PWD/evil" >x; mv -f x .git; mv .git .git.old; ln -sfn evil .git; echo gone >../ws/file; echo gone >$C/../file; ls ../ws; rm -f $C/config.lock; true`,
		after: `is "$(head -1 ../ws/file)" 1; ` + gitUnplant,
	},
	{
		name: "from a submodule", only: "strict", in: "ws/sub",
		plant:  `keys >>$C/config`,
		inside: `keys >>$C/config; keys >x; mv -f x $C/config; rm -f $C/config; keys >$C/config.worktree; for h in $names; do evil $h >$C/hooks/$h; done; mv $C/hooks $C/h; ln -sfn $PWD/evil $C/hooks; echo $PWD/evil >$C/commondir; echo $PWD/evil >$C/gitdir; keys >>$C/../../config; evil x >$C/../../hooks/pre-commit; echo "gitdir: $PWD/evil" >.git; mv .git x; true`,
		after:  gitUnplant,
	},
	{
		name: "checked out by git itself", only: "strict",
		before: `mkdir t; cd t; git init -q; mkdir -p b/objects b/refs .vscode hooks; echo x >b/objects/x; echo x >b/refs/x; echo 'ref: refs/heads/main' >b/HEAD; printf '[core]\nfsmonitor = "echo bare >>$W/ran"\nworktree = ..\nbare = false\nrepositoryformatversion = 0\n' >b/config; echo '{}' >.vscode/tasks.json; git add -A; git commit -q -m t; cd ../ws; git fetch -q ../t main:hostile; rm -rf ../t`,
		plant:  `git checkout -q hostile`,
		inside: `git checkout hostile; git checkout hostile -- .; git checkout hostile -- b; git read-tree -u --reset hostile; git archive hostile | tar x; git stash; git reset -q --hard main; true`,
		after:  `[ ! -d b ] || (cd b && git status); [ ! -e .vscode/tasks.json ]; [ ! -e b/HEAD ]; git checkout -q -f main; git clean -q -f -d; `,
	},
}
