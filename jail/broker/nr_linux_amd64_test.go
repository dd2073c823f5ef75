package broker

import "golang.org/x/sys/unix"

const oldCreat = unix.SYS_CREAT
