//go:build root

package script

// gitWorks are the things that work under every policy.
var gitWorks = []gitRow{
	{
		name: "status add commit", short: true,
		inside: `git status --short; commit new text; git status --short | grep . && exit 1; git commit -q --amend -m better; git log --format=%an -1 | grep -x dev`,
		after:  `is "$(git log -1 --format=%s,%an,%ae)" better,dev,dev@x; is "$(git show HEAD:new)" text`,
	},
	{
		name:   "branch switch merge",
		inside: `git switch -q -c next; commit a A; git branch -q third; git checkout -q main; commit b B; git merge -q --no-edit next; git merge -q --ff-only third; git branch -q -d third 2>&1`,
		after:  `is "$(git rev-list --count --merges HEAD)" 1; is "$(cat a)" A; ! git rev-parse -q --verify third`,
	},
	{
		name: "conflict, resolved",
		inside: `git switch -q -c next; commit file theirs; git switch -q main; commit file ours
			! git merge -q next; grep -q '^<<<<<<<' file; echo both >file; git add file; git commit -q --no-edit
			git switch -q -c third main~; commit file third; ! git rebase -q main 2>&1; git rebase --abort; git checkout -q main`,
		after: `is "$(cat file)" both`,
	},
	{
		name: "rebase, interactive too",
		inside: `git switch -q topic; commit t1 T1; commit t2 T2; git rebase -q main
			GIT_SEQUENCE_EDITOR='sed -i 2s/pick/squash/' GIT_EDITOR=true git rebase -q -i main`,
		after: `is "$(git rev-list --count main..topic)" 1; is "$(git show topic:t2)" T2`,
	},
	{
		name:   "stash",
		inside: `echo x >>file; git stash push -q; git diff --quiet; echo new >untracked; git stash push -q -u; git stash pop -q; git stash pop -q; echo y >>file; git stash -q`,
		after:  `is "$(git stash list | wc -l)" 1; is "$(cat untracked)" new`,
	},
	{
		name:   "cherry-pick revert tag notes",
		inside: `git switch -q topic; commit p P; git switch -q main; git cherry-pick topic; git revert --no-edit HEAD; git tag v1; git tag -a v2 -m two; git notes add -m note; git describe | grep -x v2`,
		after:  `is "$(git tag | wc -l)" 2; [ ! -e p ]; is "$(git notes show)" note`,
	},
	{
		name:   "bisect blame grep archive format-patch am",
		inside: `commit file 2; commit file 3; git format-patch -q -1 -o /tmp/p; git reset -q --hard HEAD~; git am -q /tmp/p/*; git bisect start HEAD HEAD~2 >/dev/null; git bisect run true >/dev/null; git bisect reset 2>&1; git blame file >/dev/null; git grep -q 3; git archive HEAD | tar -t | grep -x file`,
		after:  `is "$(cat file)" 3`,
	},
	{
		name:   "gc repack prune reflog",
		inside: `for i in 1 2 3; do commit file $i; done; git gc -q --prune=now --aggressive; git repack -q -a -d -f; git pack-refs --all; git prune; git reflog expire --expire=now --all; git commit-graph write; git multi-pack-index write; git maintenance run --quiet; git fsck --no-dangling`,
		after:  `is "$(git count-objects)" '0 objects, 0 kilobytes'; git commit-graph verify; is "$(cat ../linked/file | wc -l)" 5; git -C ../linked status`,
	},
	{
		name:   "reset clean restore rm mv",
		inside: `git mv file moved; git commit -q -m moved; git rm -q moved; git restore --staged --worktree moved; touch junk; git clean -q -f -d; git reset -q --hard HEAD~`,
		after:  `is "$(ls)" "$(printf 'file\nsub')"`,
	},
	{
		name:   "hooks that exist run",
		before: `printf '#!/bin/sh\necho checked >>checks\n' >ws/.git/hooks/pre-commit; printf '#!/bin/sh\necho "Signed-off-by: hook" >>"$1"\n' >ws/.git/hooks/commit-msg; chmod +x ws/.git/hooks/*; echo checks >>ws/.git/info/exclude`,
		inside: `commit new text; is=$(cat checks); [ "$is" = checked ]`,
		after:  `git log -1 --format=%B | grep -x 'Signed-off-by: hook'; is "$(cat checks)" checked`,
	},
	{
		name:   "clone into /tmp and home, and back",
		inside: `for d in /tmp/c ~/c; do git clone -q . $d; (cd $d && git config user.name me && git switch -q -c from-$(echo $d | tr -d /.) && commit c C && git push -q -u origin HEAD && git remote add x /tmp/x && git worktree add -q ../w && git worktree remove ../w); done; git branch | grep -c from- | grep -x 2`,
		after:  `is "$(git branch | grep -c from-)" 2; git fsck`,
	},
	{
		name:   "init in /tmp and home",
		inside: `for d in /tmp/i ~/i; do git init -q $d; (cd $d && git config core.autocrlf false && commit i I && git branch -m trunk && git gc -q && git submodule --quiet add "$W/ws/.git" s 2>/dev/null || true); git -C $d log -1 --format=%s | grep -x I; done; git init -q --bare /tmp/b; git push -q /tmp/b main`,
	},
	{
		name:   "submodules that exist",
		inside: `git submodule status | grep ' sub '; (cd sub && git switch -q -c fix && commit lib.txt two && git log --oneline | wc -l | grep -x 2); git submodule status | grep '^+'; git add sub; git commit -q -m bump; git submodule foreach -q 'git status --short'; git submodule summary HEAD~ | grep two; git diff --submodule=log HEAD~ | grep two`,
		after:  `is "$(git submodule status | cut -c1)" ' '; is "$(cat sub/lib.txt)" two; is "$(git -C sub log -1 --format=%s)" two; git submodule update`,
	},
	{
		name:   "a submodule that moved on",
		before: `cd ws/sub; echo three >lib.txt; git commit -q -a -m three; cd ..; git commit -q -a -m 'bump to three'`,
		inside: `git checkout -q HEAD~; git -C sub checkout -q $(git rev-parse :sub); grep -x one sub/lib.txt; git status --short | grep . && exit 1; git switch -q main; git submodule foreach -q 'git checkout -q $sha1'; grep -x three sub/lib.txt`,
		after:  `is "$(cat sub/lib.txt)" three; is "$(git submodule status | cut -c1)" ' '`,
	},
	{
		name: "git submodule update", only: "permissive",
		inside: `git -C sub switch -q -c other; git submodule update -q; git submodule update -q --init --recursive; git checkout -q --recurse-submodules HEAD; git reset -q --hard --recurse-submodules`,
		after:  `is "$(git submodule status | cut -c1)" ' '`,
	},
	{
		name:   "git-lfs",
		needs:  "git-lfs",
		before: `cd ws; git lfs install --local >/dev/null; git lfs track '*.bin' >/dev/null; head -c 100000 /dev/zero >old.bin; git add .; git commit -q -m lfs`,
		inside: `head -c 200000 /dev/zero >new.bin; git add new.bin; git commit -q -m new; git status --short | grep . && exit 1; rm new.bin old.bin; git checkout -q .; [ $(wc -c <new.bin) = 200000 ]; git lfs ls-files | wc -l | grep -x 2; git switch -q -c lfs HEAD~; [ ! -e new.bin ]; git switch -q main; [ $(wc -c <new.bin) = 200000 ]`,
		after:  `git show HEAD:new.bin | head -1 | grep git-lfs; git lfs fsck; is "$(wc -c <new.bin)" 200000`,
	},
	{
		name:   "a branch that begins at a remote one",
		inside: `git checkout -q -b x origin/topic 2>&1; git checkout -q feature 2>&1; git switch -q -c y origin/feature 2>&1; git branch -q z origin/topic 2>&1; git branch | grep -c '[xyz]$\|feature' | grep -x 4`,
		after:  `is "$(git branch --show-current)" y; is "$(git rev-parse x)" "$(git rev-parse origin/topic)"`,
	},
	{
		name:   "fetch and push of what the jail can reach",
		inside: `git clone -q --bare . /tmp/r; git fetch -q /tmp/r main:refs/remotes/r/main; git push -q /tmp/r main:pushed; git pull -q /tmp/r main; git ls-remote -q /tmp/r | grep pushed; git bundle create -q /tmp/bundle main; git fetch -q /tmp/bundle main`,
		after:  `git rev-parse r/main`,
	},
	{
		name:   "sparse index, attributes, ignore files",
		inside: `echo '*.o' >.gitignore; echo '*.txt text' >.gitattributes; touch a.o a.txt; git add .; git commit -q -m ignore; git check-ignore a.o; git check-attr text a.txt | grep set; git update-index --refresh; git ls-files | grep -c . | grep -x 6`,
		after:  `is "$(git status --short)" ''`,
	},

	// The workspace is a linked worktree: its .git names a directory of a repository that lies elsewhere.
	{
		name: "in a linked worktree", in: "linked", short: true,
		inside: `git status --short; commit new text; git switch -q -c next; commit a A; git rebase -q main 2>&1; git stash -q || true; echo x >>file; git stash -q; git stash pop -q; git commit -q -a -m x; git tag t; git merge -q --no-edit topic 2>&1; git worktree list | grep -c . | grep -x 3; git cherry-pick --allow-empty linked 2>&1 || git cherry-pick --abort`,
		after:  `is "$(git branch --show-current)" next; is "$(cat new)" text; git -C ../ws rev-parse next t; git -C ../ws status`,
	},
	{
		name: "gc in a linked worktree", in: "linked",
		inside: `for i in 1 2 3; do commit file $i; done; git gc -q --prune=now; git repack -q -a -d; git pack-refs --all; git fsck --no-dangling`,
		after:  `is "$(cat file)" 3; git -C ../ws fsck --strict --no-dangling; is "$(git -C ../ws count-objects)" '0 objects, 0 kilobytes'`,
	},
	{
		name: "submodule in a linked worktree", in: "linked",
		before: `git -C linked submodule --quiet update --init`,
		inside: `git submodule status | grep sub; (cd sub && git switch -q -c fix && commit lib.txt two); git add sub; git commit -q -m bump`,
		after:  `is "$(cat sub/lib.txt)" two; is "$(git -C sub log -1 --format=%s)" two`,
	},
	{
		name: "clone of a linked worktree", in: "linked",
		inside: `git clone -q . /tmp/c; cd /tmp/c; commit c C; git push -q origin HEAD:refs/heads/pushed`,
		after:  `git rev-parse pushed`,
	},
	{
		name: "worktree with its own configuration", in: "linked",
		before: `cd linked; git config extensions.worktreeConfig true; git config --worktree user.name other`,
		inside: `commit new text; git switch -q -c more`,
		after:  `is "$(git log -1 --format=%an)" other`,
	},
	{
		name: "worktree with relative names", in: "linked",
		before: `echo 'gitdir: ../ws/.git/worktrees/linked' >linked/.git`,
		inside: `git status --short; commit new text`,
		after:  `is "$(git log -1 --format=%s)" text`,
	},
	{
		name: "worktree of a bare repository", in: "bw",
		before: `git clone -q --bare ws bare.git; git -C bare.git worktree add -q ../bw main`,
		inside: `git status --short; commit new text; git gc -q`,
		after:  `is "$(git log -1 --format=%s)" text; git -C ../bare.git fsck`,
	},
	{
		name: "the workspace is a submodule", in: "ws/sub",
		inside: `git status --short; commit new text; git switch -q -c fix; commit a A`,
		after:  `is "$(git log -1 --format=%s)" A; is "$(git -C .. status --short)" ' M sub'`,
	},

	{
		name:   "a worktree below the workspace",
		before: `cd ws; git worktree add -q inner; echo inner >>.git/info/exclude`,
		inside: `cd inner; git status --short; commit i I; git switch -q -c deep; commit j J; git stash list; git rebase -q main; cd ..; git merge -q deep; git gc -q`,
		after:  `is "$(cat inner/j)$(cat j)" JJ; is "$(git -C inner branch --show-current)" deep`,
	},
	{
		name: "worktrees, configuration and submodules of one's own", only: "permissive",
		inside: `git config foo.bar baz; git checkout -q -b x origin/topic; git config branch.x.remote | grep -x origin; git checkout -q main; git branch -m x xx; git worktree add -q inner; (cd inner && commit i I); git worktree remove inner; git worktree add -q /tmp/w; (cd /tmp/w && commit w W); git worktree remove /tmp/w; git clone -q . here; rm -rf here; git init -q new; rm -rf new; git clone -q --bare . /tmp/m; git -c protocol.file.allow=always submodule --quiet add /tmp/m m; git commit -q -m m`,
		after:  `is "$(git show w:w)" W; is "$(git config branch.xx.remote)" origin; git worktree prune`,
	},
}

// gitRefused are the things that strict refuses because they write what git obeys: with an error that says so, no lock left, nothing broken.
var gitRefused = []gitRow{
	{
		name: "configuration", only: "strict", short: true,
		inside: `refused git config foo.bar baz; refused git config --unset remote.origin.url; refused git remote add x /tmp/x; refused git remote remove origin; refused git remote set-url origin /x; git config foo.bar || true; commit on on`,
		after:  `! git config foo.bar; is "$(git remote)" origin; is "$(git log -1 --format=%s)" on`,
	},
	{
		name: "tracking", only: "strict",
		inside: `git branch -u origin/topic topic 2>&1 | grep denied; git switch -q -c t --track origin/feature 2>&1 | grep denied; git branch --show-current | grep -x t; refused git branch -m t u; git branch --show-current | grep -x u; git branch -D topic 2>&1; git clone -q --bare . /tmp/r; git push -q -u /tmp/r main 2>&1; git --git-dir=/tmp/r log -1 --format=%s; commit on on`,
		after:  `is "$(git branch --show-current)" u; ! git rev-parse --verify -q topic; ! git config branch.u.merge; is "$(git log -1 --format=%s)" on`,
	},
	{
		name: "worktree add", only: "strict",
		inside: `refused git worktree add inner; refused git worktree add /tmp/w; refused git worktree add ~/w -b w3; refused git worktree add --detach /tmp/d; ls -A | grep inner && exit 1; [ ! -e /tmp/w ]; git worktree list | grep -c . | grep -x 3; touch -d '1 year ago' .git/worktrees/*/index .git/worktrees/*/gitdir 2>/dev/null || true; git gc -q --prune=now; commit on on`,
		after:  `is "$(ls .git/worktrees | tr "\n" " ")" "linked other "; git worktree list; git -C ../linked status`,
	},
	{
		name: "submodule add", only: "strict",
		inside: `git clone -q --bare . /tmp/m; refused git -c protocol.file.allow=always submodule add /tmp/m m; refused git submodule set-url sub /x; refused git submodule sync; git reset -q --hard; git clean -q -f -d; git status --short | grep . && exit 1; commit on on`,
		after:  `is "$(git submodule status | wc -l)" 1; git submodule update; is "$(git config -f .gitmodules --list | wc -l)" 2`,
	},
	{
		name: "submodule update", only: "strict", // which writes core.worktree even when it is right
		inside: `refused git submodule update; refused git submodule update --init; refused git reset --hard --recurse-submodules HEAD~; git reset -q --hard HEAD; git submodule deinit sub 2>&1 | grep denied; grep -x one sub/lib.txt; commit on on`,
		after:  `is "$(git submodule status | cut -c1)" ' '; is "$(git -C sub config core.worktree)" ../../../sub`,
	},
	{
		name: "init and clone below", only: "strict",
		inside: `refused git init new; refused git clone . here; refused git init --bare bare; refused git init; refused git init --separate-git-dir=/tmp/g; refused git clone --bare . b; rm -rf new here bare b; git status --short | grep . && exit 1; commit on on`,
	},
	{
		name: "sparse-checkout, maintenance, lfs install", only: "strict",
		inside: `refused git sparse-checkout set sub; refused git sparse-checkout init --cone; refused git lfs install --local; git read-tree -mu HEAD; git status --short | grep . && exit 1; commit on on`,
	},
	{
		name: "a branch with other protected files", only: "strict",
		before: `cd ws; git switch -q -c tasks; mkdir .vscode; echo '{}' >.vscode/tasks.json; echo use flake >.envrc; git add .; git commit -q -m tasks; git switch -q main`,
		inside: `git switch tasks 2>&1 || true; git status --short; git checkout -f main 2>&1 || true; git reset -q --hard main; commit on on`,
		after:  `[ ! -e .vscode/tasks.json ]; [ ! -e .envrc ]; is "$(git status --short)" ''`,
	},
}
