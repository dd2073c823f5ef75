//go:build ignore
/* SPDX-License-Identifier: GPL-2.0 */
/* Lineage on every tier: exec with argv, fork, exit, and tasks that leave their
 * group. On tier C a denied exec is killed here, before its first instruction, and
 * opens can be recorded at the end of their system call.
 */
#include "include/walk.h"

char _license[] SEC("license") = "GPL";
const struct birth *_birth __attribute__((unused)); /* keeps the types in the BTF for Go */
const struct record *_record __attribute__((unused));

/* rdonly and current: exec has replaced the memory and committed; nothing races. */
SEC("tp_btf/sched_process_exec")
int BPF_PROG(trace_exec, struct task_struct *task, pid_t old, struct linux_binprm *bprm)
{
	struct who w;
	enum entry entry = enter(&w);

	if (entry == ENTRY_FREE || entry == ENTRY_TRUSTED)
		return 0;
	struct scratch *sc = entry == ENTRY_JAILED ? scratch_of(&w) : 0;
	if (!sc) {
		u32 flags = w.jail ? w.jail->flags : JAIL_KILL_EXEC | JAIL_ENFORCE;
		if (w.jail)
			emit_bare(w.slot, KIND_EXEC, REC_NO_STORAGE, EACCES, 0);
		if ((flags & JAIL_KILL_EXEC) && (flags & JAIL_ENFORCE))
			bpf_send_signal(9);
		return 0;
	}
	u32 flags = w.jail->flags;
	stamp(&sc->rec, KIND_EXEC);
	if (w.escaped)
		escape_of(w.slot, sc->rec.tgid, sc->rec.tid);
	struct file *exe = BPF_CORE_READ(task, mm, exe_file);
	sc->start_dentry = (u64)BPF_CORE_READ(exe, f_path.dentry);
	sc->start_mnt = MNT(BPF_CORE_READ(exe, f_path.mnt));
	sc->rec.ino = BPF_CORE_READ(exe, f_inode, i_ino);
	sc->rec.dev = BPF_CORE_READ(exe, f_inode, i_sb, s_dev);
	sc->large = flags & JAIL_LARGE;
	sc->off = 0;
	sc->rec.len1 = walk_path(sc, w.slot);
	bool allow = sc->bits & BIT_EXEC;
	if (sc->end != END_ROOT)
		sc->rec.flags |= sc->end == END_RACED ? REC_RACED : REC_UNREACHABLE;

	/* #!: the file that was asked for is gone by now, its name is not. */
	const char *name = BPF_CORE_READ(bprm, filename), *interp = BPF_CORE_READ(bprm, interp);
	u32 at = sc->rec.len1;
	if (name != interp && at <= PATH_BYTES) {
		long n = bpf_probe_read_kernel_str(sc->data + at, 1024, name);
		if (n > 1 && n <= 1024) {
			sc->rec.len2 = n - 1;
			sc->rec.flags |= REC_SCRIPT;
			at += n - 1;
		}
	}
	unsigned long from = BPF_CORE_READ(task, mm, arg_start);
	unsigned long len = BPF_CORE_READ(task, mm, arg_end) - from;
	u32 room = DATA_BYTES - at;
	if (room > PATH_BYTES - 1)
		room = PATH_BYTES - 1;
	if (len > room) {
		len = room;
		sc->rec.flags |= REC_CUT;
	}
	len &= PATH_BYTES - 1;
	if (at <= DATA_BYTES - PATH_BYTES + 1024 && !bpf_probe_read_user(sc->data + at, len, (void *)from))
		sc->rec.len3 = len;

	if (allow)
		sc->rec.flags |= REC_ALLOW;
	else if (!(flags & JAIL_ENFORCE))
		sc->rec.flags |= REC_ALLOW | REC_PERMITTED;
	else
		sc->rec.error = EACCES;
	bool kill = (flags & JAIL_ENFORCE) && (flags & JAIL_KILL_EXEC) && !allow;
	if (kill)
		sc->rec.flags |= REC_KILLED;
	int lost = emit(sc, w.slot);
	if (kill || (lost && (flags & JAIL_STRICT) && (flags & JAIL_ENFORCE)))
		bpf_send_signal(9);
	return 0;
}

struct fork_record {
	struct record rec;
	struct birth birth;
};

/* The child's own group decides: a jail's first process is cloned into it. */
SEC("tp_btf/sched_process_fork")
int BPF_PROG(trace_fork, struct task_struct *parent, struct task_struct *child)
{
	u64 group = group_of(child);
	struct member *from = bpf_task_storage_get(&members, parent, 0, 0);
	int slot = -1;

	if (from)
		slot = from->slot & (MAX_JAILS - 1);
	else if (bpf_current_task_under_cgroup(&agents, 0) == 1)
		slot = slot_of_group(group);
	else {
		/* clone3(CLONE_INTO_CGROUP) from outside: rare, and cheap to tell. */
		if (group == group_of(parent))
			return 0;
		slot = slot_of_group(group);
	}
	if (slot < 0)
		return 0;
	u32 key = slot;
	struct jail *jail = bpf_map_lookup_elem(&slots, &key);
	if (!jail || (!from && !jail->id))
		return 0;
	struct member *m = bpf_task_storage_get(&members, child, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (m) {
		m->cgroup = group_id(group);
		m->slot = slot;
		m->id = from ? from->id : jail->id;
	}
	u32 tgid = BPF_CORE_READ(child, tgid);
	if (tgid != (u32)BPF_CORE_READ(child, pid))
		return 0; /* a thread */
	if (from && from->id != jail->id)
		return 0; /* its jail is gone; it stays denied everything */
	if (jail->flags & JAIL_SETUP)
		return 0;
	struct fork_record r;
	stamp(&r.rec, KIND_FORK);
	r.rec.flags = REC_ALLOW;
	__builtin_memset(&r.birth, 0, sizeof(r.birth));
	r.birth.start = BPF_CORE_READ(child, start_boottime);
	r.birth.tgid = tgid;
	r.birth.tid = tgid;
	r.birth.ppid = BPF_CORE_READ(child, real_parent, tgid);
	struct pid *pid = BPF_CORE_READ(child, thread_pid);
	u32 level = BPF_CORE_READ(pid, level);
	r.birth.jail_pid = 0;
	if (level < 33)
		bpf_probe_read_kernel(&r.birth.jail_pid, 4,
				      (void *)(MEMBER(pid, pid, numbers) + level * bpf_core_type_size(struct upid)));
	bpf_get_current_comm(r.birth.comm, sizeof(r.birth.comm));
	r.rec.len1 = sizeof(r.birth);
	send_record(&r.rec, key, sizeof(r));
	return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(trace_exit, struct task_struct *task)
{
	struct member *m = bpf_task_storage_get(&members, task, 0, 0);

	if (!m || BPF_CORE_READ(task, signal, live.counter))
		return 0;
	u32 slot = m->slot & (MAX_JAILS - 1);
	struct jail *jail = bpf_map_lookup_elem(&slots, &slot);
	if (!jail || jail->id != m->id || (jail->flags & JAIL_SETUP))
		return 0;
	struct record r;
	stamp(&r, KIND_EXIT);
	r.flags = REC_ALLOW;
	int code = BPF_CORE_READ(task, signal, group_exit_code);
	r.op_flags = code ? code : BPF_CORE_READ(task, exit_code);
	send_record(&r, slot, sizeof(r));
	return 0;
}

/* A member that is moved out of the group of its jail, by whomever. */
SEC("tp_btf/cgroup_attach_task")
int BPF_PROG(trace_attach, struct cgroup *to, const char *path, struct task_struct *task, bool group)
{
	struct member *m = bpf_task_storage_get(&members, task, 0, 0);

	if (!m)
		return 0;
	u32 slot = m->slot & (MAX_JAILS - 1);
	struct jail *jail = bpf_map_lookup_elem(&slots, &slot);
	if (!jail || jail->id != m->id)
		return 0;
	int now = slot_of_group((u64)BPF_CORE_READ(to, self.cgroup)); /* itself, as a number */
	if (now == (int)slot)
		return 0;
	m->cgroup = group_id((u64)BPF_CORE_READ(to, self.cgroup)); /* reported: once is enough */
	escape_of(slot, BPF_CORE_READ(task, tgid), BPF_CORE_READ(task, pid));
	return 0;
}

#define NR_OPEN 2
#define NR_CREAT 85
#define NR_OPENAT 257
#define NR_OPENAT2 437

/* open(2) flags that make an open the broker's: it reports it itself. */
#define CHANGES (00000003 | 00000100 | 00001000 | 020000000)
#define AT_FDCWD_HERE -100
#define ENOENT 2
#define NAME_BYTES 2048
#define MODE_TYPE 0170000
#define MODE_FIFO 0010000

/* file_at is the open file behind a descriptor of the current task. */
static __always_inline struct file *file_at(struct task_struct *task, long fd)
{
	struct fdtable *table = BPF_CORE_READ(task, files, fdt);
	struct file **fds = BPF_CORE_READ(table, fd), *file = 0;

	if (fd < 0 || fd >= BPF_CORE_READ(table, max_fds))
		return 0;
	bpf_probe_read_kernel(&file, sizeof(file), fds + fd);
	return file;
}

/* absent reports the name of an open for reading that found nothing: who looks for
 * keys is worth a record where there are none. The name is read again from the caller,
 * who may have changed it: it decides nothing, user space matches it against the rules.
 */
static __always_inline void absent(struct who *w, struct scratch *sc, struct pt_regs *regs, long nr)
{
	const char *name = (const char *)(nr == NR_OPEN ? BPF_CORE_READ(regs, di) : BPF_CORE_READ(regs, si));
	u64 how = nr == NR_OPEN ? BPF_CORE_READ(regs, si) : BPF_CORE_READ(regs, dx);
	struct task_struct *task = w->task;
	char first = 0;

	if (how & CHANGES || bpf_probe_read_user(&first, 1, name) || !first)
		return;
	stamp(&sc->rec, KIND_OPEN);
	sc->off = 0;
	if (first != '/') {
		int at = nr == NR_OPEN ? AT_FDCWD_HERE : (int)BPF_CORE_READ(regs, di);
		if (at == AT_FDCWD_HERE) {
			sc->start_dentry = (u64)BPF_CORE_READ(task, fs, pwd.dentry);
			sc->start_mnt = MNT(BPF_CORE_READ(task, fs, pwd.mnt));
		} else {
			struct file *dir = file_at(task, at);
			if (!dir)
				return;
			sc->start_dentry = (u64)BPF_CORE_READ(dir, f_path.dentry);
			sc->start_mnt = MNT(BPF_CORE_READ(dir, f_path.mnt));
		}
		sc->large = w->jail->flags & JAIL_LARGE;
		sc->rec.len1 = walk_path(sc, w->slot);
		if (sc->end != END_ROOT)
			return;
	}
	u64 to = sc->rec.len1;
	asm volatile("" : "+r"(to)); /* the verifier must see the bound in the register that is used */
	if (to > PATH_BYTES)
		return;
	long n = bpf_probe_read_user_str(sc->data + to, NAME_BYTES, name);
	if (n < 2 || n > NAME_BYTES)
		return;
	sc->rec.len2 = n - 1;
	sc->rec.op_flags = how;
	sc->rec.error = ENOENT;
	sc->rec.flags |= REC_ALLOW | REC_ABSENT; /* nothing was refused; uncritical */
	emit(sc, w->slot);
}

/* What a jail opened, from the descriptor it got: never from an argument. Costs every
 * system call of the machine about 100 ns, so it is attached only while a jail asks.
 * fanotify asks nobody about a FIFO: who opened one that is denied is killed before it
 * reads.
 */
SEC("tp_btf/sys_exit")
int BPF_PROG(trace_open, struct pt_regs *regs, long ret)
{
	long nr = BPF_CORE_READ(regs, orig_ax);
	struct who w;

	if (nr != NR_OPENAT && nr != NR_OPEN && nr != NR_OPENAT2 && nr != NR_CREAT)
		return 0;
	if (ret < 0 && ret != -ENOENT)
		return 0;
	if (enter(&w) != ENTRY_JAILED || !(w.jail->flags & (JAIL_AUDIT_OPEN | JAIL_READS)))
		return 0;
	u32 flags = w.jail->flags;
	if (ret < 0 && (!(flags & JAIL_READS) || (nr != NR_OPENAT && nr != NR_OPEN)))
		return 0;
	struct scratch *sc = scratch_of(&w);
	if (ret < 0) {
		if (sc)
			absent(&w, sc, regs, nr);
		return 0;
	}
	if (!sc) {
		emit_bare(w.slot, KIND_OPEN, REC_ALLOW | REC_NO_STORAGE, 0, 0);
		return 0;
	}
	struct file *file = file_at(w.task, ret);
	if (!file)
		return 0;
	u32 how = BPF_CORE_READ(file, f_flags);
	bool fifo = (BPF_CORE_READ(file, f_inode, i_mode) & MODE_TYPE) == MODE_FIFO;
	if ((flags & JAIL_READS) && (how & CHANGES))
		return 0; /* the broker's */
	if (!fifo && !(flags & JAIL_AUDIT_OPEN))
		return 0;
	stamp(&sc->rec, KIND_OPEN);
	sc->start_dentry = (u64)BPF_CORE_READ(file, f_path.dentry);
	sc->start_mnt = MNT(BPF_CORE_READ(file, f_path.mnt));
	sc->rec.ino = BPF_CORE_READ(file, f_inode, i_ino);
	sc->rec.dev = BPF_CORE_READ(file, f_inode, i_sb, s_dev);
	sc->rec.op_flags = how;
	sc->large = flags & JAIL_LARGE;
	sc->off = 0;
	sc->rec.len1 = walk_path(sc, w.slot);
	if (sc->end == END_INTERNAL)
		return 0;
	if (sc->end != END_ROOT)
		sc->rec.flags |= sc->end == END_RACED ? REC_RACED : REC_UNREACHABLE;
	if (fifo && (flags & JAIL_READS) && (flags & JAIL_ENFORCE) && !(sc->bits & BIT_READ)) {
		sc->rec.flags |= REC_KILLED;
		sc->rec.error = EACCES;
		emit(sc, w.slot);
		bpf_send_signal(9);
		return 0;
	}
	if (!(flags & JAIL_AUDIT_OPEN))
		return 0;
	sc->rec.flags |= REC_ALLOW;
	emit(sc, w.slot);
	return 0;
}
