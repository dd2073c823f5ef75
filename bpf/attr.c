//go:build ignore
/* SPDX-License-Identifier: GPL-2.0 */
/* Attributes of files on tiers A and B, beside mode and owner, which have hooks with a path (files.c).
 *
 * The hooks of times, extended attributes and ACLs are given a dentry and no mount, and a dentry alone has no path. But
 * whoever changes an attribute has just asked to write to the mount, and whoever reads one by a name has just
 * looked it up: programs at these two places note the mount for the task, and the hook walks from the dentry
 * through it. A dentry that the noted mount does not show is one that the kernel works on by itself (an overlay
 * on its upper layer): what the task asked for was judged before.
 *
 * ioctl is here because file systems change attributes by it, also through a descriptor that is open for reading.
 */
#include "include/taint.h"

char _license[] SEC("license") = "GPL";

#define ATTR_MODE 1
#define ATTR_UID 2
#define ATTR_GID 4
#define ATTR_SIZE 8
#define ATTR_ATIME 16
#define ATTR_MTIME 32

static __always_inline void note(u64 mnt)
{
	struct who w;

	if (!mnt || enter(&w) != ENTRY_JAILED)
		return;
	struct scratch *sc = scratch_of(&w);
	if (sc)
		sc->noted = MNT(mnt);
}

static __always_inline u64 number(const void *pointer)
{
	u64 at = 0;

	bpf_probe_read_kernel(&at, sizeof(at), &pointer);
	return at;
}

SEC("fentry/mnt_want_write")
int BPF_PROG(note_write, struct vfsmount *mnt)
{
	note(number(mnt));
	return 0;
}

SEC("fentry/mnt_want_write_file")
int BPF_PROG(note_write_file, struct file *file)
{
	note((u64)BPF_CORE_READ(file, f_path.mnt));
	return 0;
}

/* What getxattr finds its name by: the loader keeps the one of the three that this kernel uses. */
SEC("fexit/user_path_at_empty")
int BPF_PROG(note_path_61, int dir, const char *name, unsigned flags, struct path *path, int *empty, int err)
{
	if (!err)
		note((u64)BPF_CORE_READ(path, mnt));
	return 0;
}

SEC("fexit/user_path_at")
int BPF_PROG(note_path_612, int dir, const char *name, unsigned flags, struct path *path, int err)
{
	if (!err)
		note((u64)BPF_CORE_READ(path, mnt));
	return 0;
}

SEC("fexit/filename_lookup")
int BPF_PROG(note_path_613, int dir, void *name, unsigned flags, struct path *path, struct path *root, int err)
{
	if (!err)
		note((u64)BPF_CORE_READ(path, mnt));
	return 0;
}

/* shown judges an act on a dentry that the noted mount shows. */
static __always_inline int shown(u64 at, u32 need)
{
	struct who w;
	int result;
	struct scratch *sc = begin(&w, KIND_SETATTR, &result);

	if (!sc)
		return result;
	u64 mnt = sc->noted;
	if (!mnt) /* 6.1 may have no memory to note it in; it notes every write, also those of the kernel itself */
		return refusal(need == BIT_WRITE && !typed, EACCES);
	if (LOAD(mount, mnt, mnt.mnt_sb) != LOAD(dentry, at, d_sb))
		return 0;
	struct inode *inode = (struct inode *)LOAD(dentry, at, d_inode);
	identify(&sc->rec, inode);
	sc->start_dentry = at;
	sc->start_mnt = mnt;
	sc->rec.len1 = walk_path(sc, w.slot);
	if (sc->end == END_INTERNAL)
		return 0;
	if (sc->end == END_LOST && sc->dentry_now != (u64)LOAD(mount, sc->mnt_now, mnt.mnt_root))
		return 0; /* it ended at the root of the file system: not below this mount */
	sc->noted = 0;
	other_names(sc, &w, inode, LOAD(inode, inode, __i_nlink));
	return refusal(judge(sc, w.slot, w.jail->flags, need), EACCES);
}

/* Times. Mode, owner and size come by here too, and by path_chmod, path_chown and path_truncate before. */
static __always_inline int times(const struct dentry *dentry, const struct iattr *attr)
{
	u32 valid = BPF_CORE_READ(attr, ia_valid);

	if ((valid & (ATTR_MODE | ATTR_UID | ATTR_GID | ATTR_SIZE)) || !(valid & (ATTR_ATIME | ATTR_MTIME)))
		return 0;
	return shown(number(dentry), BIT_WRITE);
}

/* On some kernels and tiers an idmap comes first: the loader keeps the one that fits. */
SEC("lsm/inode_setattr")
int BPF_PROG(check_setattr, struct dentry *dentry, struct iattr *attr)
{
	return times(dentry, attr);
}

SEC("lsm/inode_setattr")
int BPF_PROG(check_setattr_mapped, void *idmap, struct dentry *dentry, struct iattr *attr)
{
	return times(dentry, attr);
}

SEC("lsm/inode_setxattr")
int BPF_PROG(check_setxattr, void *idmap, struct dentry *dentry)
{
	return shown(number(dentry), BIT_WRITE);
}

SEC("lsm/inode_removexattr")
int BPF_PROG(check_removexattr, void *idmap, struct dentry *dentry)
{
	return shown(number(dentry), BIT_WRITE);
}

/* From 6.2 on; before, ACLs are extended attributes like others. */
SEC("lsm/inode_set_acl")
int BPF_PROG(check_set_acl, void *idmap, struct dentry *dentry)
{
	return shown(number(dentry), BIT_WRITE);
}

SEC("lsm/inode_remove_acl")
int BPF_PROG(check_remove_acl, void *idmap, struct dentry *dentry)
{
	return shown(number(dentry), BIT_WRITE);
}

/* Attributes hold content: user.* is anybody's. Of a descriptor the open was judged. */
SEC("lsm/inode_getxattr")
int BPF_PROG(check_getxattr, struct dentry *dentry, const char *name)
{
	return shown(number(dentry), BIT_READ);
}

#define IOC_TYPE(cmd) (((cmd) >> 8) & 0xff)
#define BTRFS_TYPE 0x94

/* reads says that an ioctl of a file or directory changes neither, or needs a descriptor that is open for writing. */
static __always_inline bool reads(u32 cmd)
{
	switch (cmd) {
	case 0x5401:	 /* TCGETS: isatty */
	case 0x541b:	 /* FIONREAD */
	case 0x5421:	 /* FIONBIO */
	case 0x5450:	 /* FIONCLEX */
	case 0x5451:	 /* FIOCLEX */
	case 0x5452:	 /* FIOASYNC */
	case 0x5460:	 /* FIOQSIZE */
	case 0x5413:	 /* TIOCGWINSZ */
	case 0x802c542a: /* TCGETS2 */
	case 1:		 /* FIBMAP */
	case 2:		 /* FIGETBSZ */
	case 0x80086601: /* FS_IOC_GETFLAGS */
	case 0x80087601: /* FS_IOC_GETVERSION */
	case 0x801c581f: /* FS_IOC_FSGETXATTR */
	case 0xc020660b: /* FS_IOC_FIEMAP */
	case 0x81009431: /* FS_IOC_GETFSLABEL */
	case 0x40049409: /* FICLONE */
	case 0x4020940d: /* FICLONERANGE */
	case 0xc0189436: /* FIDEDUPERANGE */
		return true;
	}
	return false;
}

SEC("lsm/file_ioctl")
int BPF_PROG(check_ioctl, struct file *file, unsigned cmd)
{
	u32 type = file->f_inode->i_mode & S_IFMT;
	struct who w;
	int result;

	if ((type != S_IFREG && type != S_IFDIR) || reads(cmd))
		return 0;
	struct scratch *sc = begin(&w, KIND_SETATTR, &result);
	if (!sc)
		return result;
	sc->rec.op_flags = cmd;
	place(sc, &w, &file->f_path);
	if (sc->end == END_INTERNAL)
		return 0;
	if (IOC_TYPE(cmd) == BTRFS_TYPE) /* snapshots and subvolumes: trees that come to be without any hook for their names */
		return refusal(answer(sc, w.slot, w.jail->flags, false, true), EACCES);
	return refusal(judge(sc, w.slot, w.jail->flags, BIT_WRITE), EACCES);
}
