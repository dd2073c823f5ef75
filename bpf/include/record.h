/* SPDX-License-Identifier: GPL-2.0 */
/* Layouts shared with Go (audit/hook): bpf2go generates the Go types from here
 * and a test compares the two. Little endian, naturally aligned, no holes.
 */
#ifndef AGENTOS_RECORD_H
#define AGENTOS_RECORD_H

#define MAX_JAILS 256	 /* slots: jails alive at one time */
#define MAX_DEPTH 256	 /* components of a path; deeper is unreachable */
#define PATH_BYTES 4096	 /* of one path, and of argv, in a record */
#define DATA_BYTES 8192	 /* both together */
#define KINDS 48	 /* size of per-kind counters; event.Kind is below */

/* Numbers of event.Kind (audit/event). Checked by a Go test. */
enum kind {
	KIND_EXEC = 5,
	KIND_FORK = 6,
	KIND_EXIT = 7,
	KIND_OPEN = 8,
	KIND_CREATE = 9,
	KIND_MKDIR = 10,
	KIND_MKNOD = 11,
	KIND_SYMLINK = 12,
	KIND_LINK = 13,
	KIND_RENAME = 14,
	KIND_UNLINK = 15,
	KIND_RMDIR = 16,
	KIND_TRUNCATE = 17,
	KIND_CHMOD = 18,
	KIND_CHOWN = 19,
	KIND_SETATTR = 20,
	KIND_WATCH = 21,
	KIND_RECEIVE = 22,
	KIND_SOCKET = 23,
	KIND_CONNECT = 24,
	KIND_SEND = 25,
	KIND_BIND = 26,
	KIND_UNIX_CONNECT = 27,
	KIND_RESOLVE = 28,
	KIND_SYSCALL = 29,
	KIND_PTRACE = 30,
	KIND_SIGNAL = 31,
	KIND_MOUNT = 32,
	KIND_BPF = 33,
	KIND_LIMIT = 34,
	KIND_ESCAPE = 35,
};

/* record.flags */
#define REC_ALLOW 1	    /* verdict */
#define REC_CUT 2	    /* a string was cut to fit */
#define REC_UNREACHABLE 4   /* the object has no path in this mount namespace */
#define REC_RACED 8	    /* renames kept interfering: failed closed */
#define REC_PERMITTED 16    /* denied by the rules, not enforced */
#define REC_KILLED 32	    /* the task was killed before its first instruction */
#define REC_SCRIPT 64	    /* exec through #!: path2 is the name given for the script */
#define REC_NO_STORAGE 128  /* no memory for the task's state: failed closed */
#define REC_PARTIAL 256	    /* path is relative to its file system's root */
#define REC_ABSENT 512	    /* an open that found nothing: path is where a relative name starts, path2 the name */
#define REC_LINKED 1024	    /* what is refused is refused for another name of the file; rule is that one's */

#define NO_RULE 0xffff

/* record is followed by len1 + len2 + len3 bytes: path, second path or address, argv. */
struct record {
	u64 time;	/* CLOCK_BOOTTIME, ns */
	u64 seq;	/* CPU in the upper 16 bits, count of that CPU and jail below */
	u64 task_start; /* of the thread group leader, CLOCK_BOOTTIME ns */
	u64 ino;
	u32 dev;      /* kernel encoding: major << 20 | minor */
	u32 tgid;
	u32 tid;
	u32 op_flags; /* open or rename flags, mode, exit code: by kind */
	u16 kind;
	u16 flags;
	u16 rule;
	u16 error; /* positive errno, 0 = success */
	u16 len1;
	u16 len2;
	u16 len3;
	u16 depth;
};

/* birth follows a fork record. */
struct birth {
	u64 start; /* of the child's thread group leader */
	u32 tgid;
	u32 tid;
	u32 jail_pid; /* in its innermost pid namespace */
	u32 ppid;
	char comm[16];
};

/* jail.flags */
#define JAIL_ENFORCE 1	    /* deny what the rules deny; else only record it */
#define JAIL_STRICT 2	    /* unreachable paths and full crit rings deny */
#define JAIL_KILL_EXEC 4    /* tier C: a denied exec is killed at sched_process_exec */
#define JAIL_AUDIT_ALL 8    /* record allowed file operations too */
#define JAIL_AUDIT_WRITE 16 /* record allowed changes */
#define JAIL_AUDIT_OPEN 32  /* record opens at sys_exit (tier C) */
#define JAIL_LARGE 64	    /* rules are in rules_large */
#define JAIL_SETUP 128	    /* its view is being built: all its tasks are trusted */
#define JAIL_READS 256	    /* tier C: fanotify decides opens for reading, the broker all others */

/* jail is the kernel's view of one jail; slots[i]. id 0 = free. */
struct jail {
	u64 cgroup; /* kernfs id of its v2 group */
	u32 id;
	u32 flags;
	u32 init; /* tgid of its init: trusted, neither checked nor recorded; 0 = none */
	u32 gen;  /* bumped when the rules change */
};

/* member is what a task is remembered by: sticky, whatever its cgroup says later. */
struct member {
	u64 cgroup; /* kernfs id of the group that was resolved */
	u32 slot;
	u32 id;
};

/* count is per slot and CPU. */
struct count {
	u64 seq;
	u64 attempted;
	u64 lost_crit;
	u64 lost_bulk;
	u64 denied;
	u64 fail_closed;
	u64 retries;
	u32 lost[KINDS];
};

/* machine is global state. */
struct machine {
	u64 escapes; /* tasks seen outside the group of their jail */
	u32 tier;    /* that was installed */
	u32 ready;   /* the installation is complete */
};

/* linked is a file with several names, of which one was met that a rule refuses: see taint.h. */
struct linked {
	u64 ino;
	u32 dev;
	u32 generation; /* of the inode: its number may be used again */
	u32 slot;
	u32 _hole;
};

/* taint is what that name took from the file. */
struct taint {
	u16 bits; /* 1 << enum match_op */
	u16 rule;
	u32 gen; /* jail.gen of the rules that said so */
};

/* unix_peer is a pathname socket outside that a jail may talk to. */
struct unix_peer {
	u64 ino;
	u32 dev;
	u32 slot;
};

#endif
