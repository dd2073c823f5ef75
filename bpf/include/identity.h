/* SPDX-License-Identifier: GPL-2.0 */
/* Which jail is this task in?
 *
 * Gate 1: is the current task anywhere below the group of all jails? One helper
 * call; the rest of the machine pays nothing more. Gate 2: the task's member
 * storage, valid while the task's group is the one that was resolved.
 * Membership comes from the cgroup (io_uring workers never fire a fork event) and
 * is sticky: a task that left its group stays in its jail and raises an escape.
 */
#ifndef AGENTOS_IDENTITY_H
#define AGENTOS_IDENTITY_H

#include "maps.h"

enum entry {
	ENTRY_FREE,   /* not a jailed task */
	ENTRY_JAILED,
	ENTRY_TRUSTED, /* init of a jail */
	ENTRY_BROKEN, /* jailed, but its state is not there: deny */
};

struct who {
	struct task_struct *task;
	struct jail *jail;
	u32 slot;
	u32 escaped;
};

/* slot_of_group finds the jail that holds a cgroup or one of its ancestors. */
__noinline int slot_of_group(u64 cgroup)
{
	for (int i = 0; i < 12; i++) {
		if (!cgroup)
			return -1;
		struct kernfs_node *kn = GET(cgroup, cgroup, kn);
		u64 id = GET(kernfs_node, kn, id);
		u32 *slot = bpf_map_lookup_elem(&jails, &id);
		if (slot)
			return *slot & (MAX_JAILS - 1);
		u64 parent = (u64)GET(cgroup, cgroup, self.parent);
		if (!parent)
			return -1;
		cgroup = (u64)GET(cgroup_subsys_state, parent, cgroup);
	}
	return -1;
}

static __always_inline u64 group_of(struct task_struct *task)
{
	return (u64)BPF_CORE_READ(task, cgroups, dfl_cgrp);
}

static __always_inline u64 group_id(u64 cgroup)
{
	struct kernfs_node *kn = GET(cgroup, cgroup, kn);
	return GET(kernfs_node, kn, id);
}

/* slot_of_task answers for any task; -1 = not jailed. */
static __always_inline int slot_of_task(struct task_struct *task)
{
	struct member *m = bpf_task_storage_get(&members, task, 0, 0);
	if (m) {
		u32 slot = m->slot & (MAX_JAILS - 1);
		struct jail *jail = bpf_map_lookup_elem(&slots, &slot);
		return jail && jail->id == m->id ? (int)slot : -1;
	}
	return slot_of_group(group_of(task));
}

/* gate says whether the current task may be of a jail: the rest of the machine goes no further. */
static __always_inline bool gate(void)
{
	u32 zero = 0;

	if (bpf_current_task_under_cgroup(&agents, 0) == 1)
		return true;
	struct machine *machine = bpf_map_lookup_elem(&machines, &zero);
	return machine && machine->escapes;
}

/* member_of answers for a task whose membership is known. */
static __always_inline enum entry member_of(struct who *w, const struct member *m)
{
	w->slot = m->slot & (MAX_JAILS - 1);
	w->jail = bpf_map_lookup_elem(&slots, &w->slot);
	if (!w->jail || w->jail->id != m->id || !m->id) {
		w->jail = 0;
		return ENTRY_BROKEN;
	}
	u32 tgid = bpf_get_current_pid_tgid() >> 32;
	if (tgid == w->jail->init || (w->jail->flags & JAIL_SETUP))
		return ENTRY_TRUSTED;
	return ENTRY_JAILED;
}

/* resolve finds out which jail w->task, the current one, is of. id: of its group. */
static __always_inline enum entry resolve(struct who *w, u64 id)
{
	struct member *m = bpf_task_storage_get(&members, w->task, 0, 0);
	if (!m || m->cgroup != id) {
		int slot = slot_of_group(group_of(w->task));
		if (slot < 0) {
			if (!m)
				return ENTRY_FREE; /* below the parent, but not ours */
			w->escaped = 1;
			m->cgroup = id; /* reported once */
		} else if (m && m->slot != (u32)slot) {
			w->escaped = 1; /* moved to another jail's group: the first one holds */
			m->cgroup = id;
		} else {
			if (!m)
				m = bpf_task_storage_get(&members, w->task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
			u32 key = slot;
			struct jail *j = bpf_map_lookup_elem(&slots, &key);
			if (!j)
				return ENTRY_BROKEN;
			w->slot = slot;
			w->jail = j;
			if (!m)
				return ENTRY_BROKEN;
			m->cgroup = id;
			m->slot = slot;
			m->id = j->id;
		}
	}
	return member_of(w, m);
}

static __always_inline enum entry enter(struct who *w)
{
	w->jail = 0;
	w->slot = 0;
	w->escaped = 0;
	if (!gate())
		return ENTRY_FREE;
	w->task = bpf_get_current_task_btf();
	return resolve(w, w->task->cgroups->dfl_cgrp->kn->id);
}

#endif
