package bpf

//go:generate go tool bpf2go -tags linux -target amd64 -no-global-types -type record -type birth -type jail -type member -type count -type machine -type unix_peer -type linked -type taint Trace trace.c -- -O2 -Wall -Werror -mcpu=v3 -I/usr/include/x86_64-linux-gnu
//go:generate go tool bpf2go -tags linux -target amd64 -no-global-types -type address -type reach_key Net net.c -- -O2 -Wall -Werror -mcpu=v3 -I/usr/include/x86_64-linux-gnu
//go:generate go tool bpf2go -tags linux -target amd64 -no-global-types Files files.c -- -O2 -Wall -Werror -mcpu=v3 -I/usr/include/x86_64-linux-gnu
//go:generate go tool bpf2go -tags linux -target amd64 -no-global-types Guard guard.c -- -O2 -Wall -Werror -mcpu=v3 -I/usr/include/x86_64-linux-gnu
//go:generate go tool bpf2go -tags linux -target amd64 -no-global-types Attr attr.c -- -O2 -Wall -Werror -mcpu=v3 -I/usr/include/x86_64-linux-gnu
//go:generate go tool bpf2go -tags linux -target amd64 -no-global-types -type flow -type owner Owner owner.c -- -O2 -Wall -Werror -mcpu=v3 -I/usr/include/x86_64-linux-gnu
//go:generate go tool bpf2go -tags linux -target amd64 -no-global-types Steer steer.c -- -O2 -Wall -Werror -mcpu=v3 -I/usr/include/x86_64-linux-gnu
//go:generate sh version.sh
