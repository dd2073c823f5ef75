/* SPDX-License-Identifier: GPL-2.0 */
/* From a verdict to a record in a ring, counted whether it fits or not. */
#ifndef AGENTOS_EMIT_H
#define AGENTOS_EMIT_H

#include "identity.h"

static __always_inline u64 task_start(void)
{
	struct task_struct *task = bpf_get_current_task_btf();
	return task->group_leader->start_boottime;
}

static __always_inline void stamp(struct record *r, u16 kind)
{
	u64 both = bpf_get_current_pid_tgid();

	__builtin_memset(r, 0, sizeof(*r));
	r->time = bpf_ktime_get_boot_ns();
	r->task_start = task_start();
	r->tgid = both >> 32;
	r->tid = both;
	r->kind = kind;
	r->rule = NO_RULE;
}

static __always_inline bool critical(const struct record *r)
{
	if (!(r->flags & REC_ALLOW))
		return true;
	return r->kind < KIND_OPEN || r->kind > KIND_RECEIVE;
}

/* wakeup wakes the reader once each time a ring becomes a quarter full: it looks every few
 * milliseconds, in which a loop of opens fills a ring. A wake-up per record would cost
 * an exec 60 us.
 */
static __always_inline u64 wakeup(void *ring, u64 size)
{
	u64 quarter = bpf_ringbuf_query(ring, BPF_RB_RING_SIZE) / 4;
	u64 used = bpf_ringbuf_query(ring, BPF_RB_AVAIL_DATA);

	return used < quarter && used + size + 8 >= quarter ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP;
}

/* send_record counts r and puts it, with what follows it, into the right ring of
 * its jail. Answers 0, or -1 when a critical record was lost.
 */
static __always_inline int send_record(struct record *r, u32 slot, u64 size)
{
	struct count *c = bpf_map_lookup_elem(&counts, &slot);
	bool crucial = critical(r);
	void *ring;
	u32 kind = r->kind;

	if (!c)
		return -1;
	__sync_fetch_and_add(&c->attempted, 1);
	if (!(r->flags & REC_ALLOW))
		__sync_fetch_and_add(&c->denied, 1);
	r->seq = ((u64)bpf_get_smp_processor_id() << 48) | __sync_fetch_and_add(&c->seq, 1);
	if (crucial)
		ring = bpf_map_lookup_elem(&crit, &slot);
	else
		ring = bpf_map_lookup_elem(&bulk, &slot);
	if (ring && !bpf_ringbuf_output(ring, r, size, wakeup(ring, size)))
		return 0;
	if (kind < KINDS)
		__sync_fetch_and_add(&c->lost[kind], 1);
	if (crucial) {
		__sync_fetch_and_add(&c->lost_crit, 1);
		return -1;
	}
	__sync_fetch_and_add(&c->lost_bulk, 1);
	return 0;
}

/* emit sends the record that was built in a task's scratch. */
__noinline int emit(struct scratch *sc, u32 slot)
{
	if (!sc)
		return -1;
	u64 size = (u64)sc->rec.len1 + sc->rec.len2 + sc->rec.len3;
	if (size > DATA_BYTES)
		size = DATA_BYTES;
	size += sizeof(struct record);
	return send_record(&sc->rec, slot, size);
}

/* emit_bare sends a record without strings, for when there is no scratch. A function of its own, as the record is on the stack. */
__noinline int emit_bare(u32 slot, u32 kind, u32 flags, u32 error, u32 op)
{
	struct record r;

	stamp(&r, kind);
	r.flags = flags;
	r.error = error;
	r.op_flags = op;
	return send_record(&r, slot, sizeof(r));
}

/* escape_of reports, once per escape, that a task left its jail's group. */
__noinline int escape_of(u32 slot, u32 tgid, u32 tid)
{
	struct record r;
	u32 zero = 0;
	struct machine *machine = bpf_map_lookup_elem(&machines, &zero);

	if (machine)
		__sync_fetch_and_add(&machine->escapes, 1);
	stamp(&r, KIND_ESCAPE);
	r.tgid = tgid;
	r.tid = tid;
	return send_record(&r, slot, sizeof(r));
}

static __always_inline struct scratch *scratch_of(struct who *w)
{
	return bpf_task_storage_get(&scratches, w->task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
}

#endif
