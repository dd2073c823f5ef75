//go:build ignore
/* SPDX-License-Identifier: GPL-2.0 */
/* Files of jails on tiers A and B: what a policy's read, write and deny rules say,
 * at the object. Loaded as BPF LSM programs or as fmod_ret/security_<hook>.
 * Never sleepable: on tier B the kernel skips a program while another instance holds
 * its recursion guard, and a page fault inside would hold it for long.
 */
#include "include/taint.h"

char _license[] SEC("license") = "GPL";

#define FMODE_READ 1
#define FMODE_WRITE 2
#define FMODE_EXEC 0x20 /* also in f_flags: open for execve */
#define O_ACCMODE 3
#define O_TRUNC 01000
#define RENAME_EXCHANGE 2
#define S_ISUID 0004000
#define S_ISGID 0002000
#define O_TMPFILE_BIT 020000000

/* lends says that a file of this mode lends its owner's rights to whoever runs it: the owner is a user of the host.
 * On directories set-group-ID only says who owns new files. */
static __always_inline bool lends(u32 type, u32 mode)
{
	return mode & (type == S_IFDIR ? S_ISUID : S_ISUID | S_ISGID);
}

SEC("lsm/file_open")
int BPF_PROG(check_file_open, struct file *file)
{
	struct who w;
	int result;
	struct scratch *sc = begin(&w, KIND_OPEN, &result);

	if (!sc)
		return result;
	u32 mode = file->f_mode, flags = file->f_flags, need = 0;
	if (mode & FMODE_READ)
		need |= BIT_READ;
	if ((mode & FMODE_WRITE) || (flags & O_TRUNC))
		need |= BIT_WRITE;
	if ((flags & O_ACCMODE) == O_ACCMODE) /* for ioctl only; asks for both all the same */
		need |= BIT_READ | BIT_WRITE;
	sc->rec.op_flags = flags;
	if (flags & FMODE_EXEC) {
		need = BIT_EXEC;
		sc->rec.kind = KIND_EXEC;
		sc->rec.op_flags = 0;
	}
	identify(&sc->rec, file->f_inode);
	sc->rec.len1 = walk_at(sc, w.slot, file->f_path.mnt, file->f_path.dentry);
	if (sc->end == END_INTERNAL)
		return 0; /* execve of a memfd is judged in check_exec */
	other_names(sc, &w, file->f_inode, file->f_inode->__i_nlink);
	if ((flags & O_TMPFILE_BIT) && lends(0, file->f_inode->i_mode))
		return refusal(answer(sc, w.slot, w.jail->flags, false, true), EACCES);
	return refusal(judge(sc, w.slot, w.jail->flags, need), EACCES);
}

/* one judges a change of the name dentry below dir. never: no rule allows it. */
static __always_inline int one(const struct path *dir, struct dentry *dentry, u16 kind, u32 op, bool never)
{
	struct who w;
	int result;
	struct scratch *sc = begin(&w, kind, &result);

	if (!sc)
		return result;
	sc->rec.op_flags = op;
	u64 at = 0;
	bpf_probe_read_kernel(&at, sizeof(at), &dentry); /* as a number */
	struct dentry *d = (struct dentry *)at;
	identify(&sc->rec, BPF_CORE_READ(d, d_inode));
	sc->rec.len1 = walk_at(sc, w.slot, BPF_CORE_READ(dir, mnt), d);
	if (never)
		return refusal(answer(sc, w.slot, w.jail->flags, false, true), EACCES);
	return refusal(judge(sc, w.slot, w.jail->flags, BIT_WRITE), EACCES);
}

SEC("lsm/path_unlink")
int BPF_PROG(check_unlink, const struct path *dir, struct dentry *dentry)
{
	return one(dir, dentry, KIND_UNLINK, 0, false);
}

SEC("lsm/path_rmdir")
int BPF_PROG(check_rmdir, const struct path *dir, struct dentry *dentry)
{
	return one(dir, dentry, KIND_RMDIR, 0, false);
}

SEC("lsm/path_mkdir")
int BPF_PROG(check_mkdir, const struct path *dir, struct dentry *dentry, umode_t mode)
{
	return one(dir, dentry, KIND_MKDIR, mode, false);
}

/* Also what open(O_CREAT) comes by before the file exists. */
SEC("lsm/path_mknod")
int BPF_PROG(check_mknod, const struct path *dir, struct dentry *dentry, umode_t mode, unsigned dev)
{
	u32 type = mode & S_IFMT;
	return one(dir, dentry, type == S_IFREG || !type ? KIND_CREATE : KIND_MKNOD, mode, lends(type, mode));
}

SEC("lsm/path_symlink")
int BPF_PROG(check_symlink, const struct path *dir, struct dentry *dentry, const char *target)
{
	struct who w;
	int result;
	struct scratch *sc = begin(&w, KIND_SYMLINK, &result);

	if (!sc)
		return result;
	u64 at = 0;
	bpf_probe_read_kernel(&at, sizeof(at), &dentry);
	sc->rec.len1 = walk_at(sc, w.slot, BPF_CORE_READ(dir, mnt), (struct dentry *)at);
	u32 off = sc->rec.len1;
	if (off <= PATH_BYTES) { /* what it points to is recorded, not judged: opens are */
		long n = bpf_probe_read_kernel_str(sc->data + off, PATH_BYTES, target);
		if (n > 1 && n <= PATH_BYTES)
			sc->rec.len2 = n - 1;
	}
	return refusal(judge(sc, w.slot, w.jail->flags, BIT_WRITE), EACCES);
}

static __always_inline int attributes(const struct path *path, u16 kind, u32 op, bool never)
{
	struct who w;
	int result;
	struct scratch *sc = begin(&w, kind, &result);

	if (!sc)
		return result;
	sc->rec.op_flags = op;
	place(sc, &w, path);
	if (never)
		return refusal(answer(sc, w.slot, w.jail->flags, false, true), EACCES);
	return refusal(judge(sc, w.slot, w.jail->flags, BIT_WRITE), EACCES);
}

SEC("lsm/path_truncate")
int BPF_PROG(check_truncate, const struct path *path)
{
	return attributes(path, KIND_TRUNCATE, 0, false);
}

/* ftruncate, from 6.2 on: the descriptor was opened for writing, so only recorded there. */
SEC("lsm/file_truncate")
int BPF_PROG(check_file_truncate, struct file *file)
{
	struct who w;
	int result;
	struct scratch *sc = begin(&w, KIND_TRUNCATE, &result);

	if (!sc)
		return result;
	place(sc, &w, &file->f_path);
	return refusal(judge(sc, w.slot, w.jail->flags, BIT_WRITE), EACCES);
}

/* inotify, fanotify, dnotify: who is told of every access to a file learns as much as a reader of its metadata may. */
SEC("lsm/path_notify")
int BPF_PROG(check_notify, const struct path *path, u64 mask, unsigned type)
{
	struct who w;
	int result;
	struct scratch *sc = begin(&w, KIND_OPEN, &result);

	if (!sc)
		return result;
	place(sc, &w, path);
	return refusal(judge(sc, w.slot, w.jail->flags, BIT_READ), EACCES);
}

SEC("lsm/path_chmod")
int BPF_PROG(check_chmod, const struct path *path, umode_t mode)
{
	return attributes(path, KIND_CHMOD, mode, lends(BPF_CORE_READ(path, dentry, d_inode, i_mode) & S_IFMT, mode));
}

SEC("lsm/path_chown")
int BPF_PROG(check_chown, const struct path *path, u64 uid, u64 gid)
{
	return attributes(path, KIND_CHOWN, (u32)uid, false);
}

SEC("lsm/path_link")
int BPF_PROG(check_link, struct dentry *old, const struct path *dir, struct dentry *new)
{
	struct who w;
	int result;
	struct scratch *sc = begin(&w, KIND_LINK, &result);

	if (!sc)
		return result;
	u64 from = 0, to = 0;
	bpf_probe_read_kernel(&from, sizeof(from), &old);
	bpf_probe_read_kernel(&to, sizeof(to), &new);
	struct vfsmount *mnt = BPF_CORE_READ(dir, mnt); /* both names are on it */
	struct dentry *d = (struct dentry *)from;
	struct inode *inode = BPF_CORE_READ(d, d_inode);
	identify(&sc->rec, inode);
	sc->rec.len1 = walk_at(sc, w.slot, mnt, d);
	other_names(sc, &w, inode, LOAD(inode, inode, __i_nlink));
	keep_first(sc);
	sc->rec.len2 = walk_at(sc, w.slot, mnt, (struct dentry *)to);
	return refusal(judge_pair(sc, w.slot, w.jail->flags, PAIR_LINK, 0), EACCES);
}

SEC("lsm/path_rename")
int BPF_PROG(check_rename, const struct path *old_dir, struct dentry *old, const struct path *new_dir,
	     struct dentry *new, unsigned flags)
{
	struct who w;
	int result;
	struct scratch *sc = begin(&w, KIND_RENAME, &result);

	if (!sc)
		return result;
	u64 from = 0, to = 0;
	bpf_probe_read_kernel(&from, sizeof(from), &old);
	bpf_probe_read_kernel(&to, sizeof(to), &new);
	struct dentry *d = (struct dentry *)from, *e = (struct dentry *)to;
	bool both = flags & RENAME_EXCHANGE;
	bool dir = (BPF_CORE_READ(d, d_inode, i_mode) & S_IFMT) == S_IFDIR;
	if (both && (BPF_CORE_READ(e, d_inode, i_mode) & S_IFMT) == S_IFDIR)
		dir = true;
	identify(&sc->rec, BPF_CORE_READ(d, d_inode));
	sc->rec.op_flags = flags;
	sc->rec.len1 = walk_at(sc, w.slot, BPF_CORE_READ(old_dir, mnt), d);
	keep_first(sc);
	sc->rec.len2 = walk_at(sc, w.slot, BPF_CORE_READ(new_dir, mnt), e);
	return refusal(judge_pair(sc, w.slot, w.jail->flags, dir ? PAIR_MOVE_DIR : PAIR_MOVE, both), EACCES);
}
