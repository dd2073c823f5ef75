package jail

import (
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"runtime"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Host ids of jails: above everything that distributions, systemd and subuid
// files hand out (systemd.io/UIDS-GIDS lists 1879048192 up as unused), below
// systemd's foreign range.
const (
	firstID   = 0x70000000
	maxRanges = 2048
)

// RangeSize is how many ids a jail has, from the one that [Ranges.Take] returns on.
const RangeSize = 0x10000

// Ranges hands out the private id ranges of jails and keeps a user namespace
// for each way a range is used as a mount's id map, because making one costs a
// process. It is safe for concurrent use.
type Ranges struct {
	first uint32 // range that is tried first
	mu    sync.Mutex
	taken map[uint32]bool
	maps  map[idmap]*os.File
}

type idmap struct {
	base               uint32
	hostUID, insideUID int
	hostGID, insideGID int
	back               bool // from the jail's to the host's
}

// NewRanges returns an empty allocator. Allocators of different groups start at
// different places, so that two helpers on one machine rarely share ids.
func NewRanges(group string) *Ranges {
	h := fnv.New32a()
	_, _ = h.Write([]byte(group))
	return &Ranges{first: h.Sum32() % maxRanges, taken: map[uint32]bool{}, maps: map[idmap]*os.File{}}
}

// Take reserves the lowest free range and returns its first host id.
func (r *Ranges) Take() (uint32, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range uint32(maxRanges) {
		base := firstID + (r.first+i)%maxRanges*RangeSize
		if !r.taken[base] {
			r.taken[base] = true
			return base, nil
		}
	}
	return 0, errors.New("take id range: all are in use")
}

// Put gives a range back.
func (r *Ranges) Put(base uint32) {
	r.mu.Lock()
	delete(r.taken, base)
	r.mu.Unlock()
}

// Close closes the namespaces that are kept.
func (r *Ranges) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for k, f := range r.maps {
		_ = f.Close()
		delete(r.maps, k)
	}
}

// System returns the id map for trees of the host system: every host id below
// 65536 appears as itself inside.
func (r *Ranges) System(base uint32) (*os.File, error) {
	return r.userns(idmap{base, -1, -1, -1, -1, false})
}

// Owner returns the id map for trees of the caller: only the caller's own uid
// and gid are mapped, to the agent's.
func (r *Ranges) Owner(base uint32, hostUID, insideUID, hostGID, insideGID int) (*os.File, error) {
	return r.userns(idmap{base, hostUID, insideUID, hostGID, insideGID, false})
}

// Back returns the id map for what a jail made on disk and a user is shown: only
// the agent's uid and gid are mapped, to the user's.
func (r *Ranges) Back(base uint32, hostUID, insideUID, hostGID, insideGID int) (*os.File, error) {
	return r.userns(idmap{base, hostUID, insideUID, hostGID, insideGID, true})
}

func (r *Ranges) userns(k idmap) (*os.File, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if f := r.maps[k]; f != nil {
		return f, nil
	}
	uids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: int(k.base), Size: RangeSize}}
	gids := uids
	if k.hostUID >= 0 {
		uids = []syscall.SysProcIDMap{{ContainerID: k.hostUID, HostID: int(k.base) + k.insideUID, Size: 1}}
		gids = []syscall.SysProcIDMap{{ContainerID: k.hostGID, HostID: int(k.base) + k.insideGID, Size: 1}}
	}
	if k.back {
		uids[0].ContainerID, uids[0].HostID = uids[0].HostID, uids[0].ContainerID
		gids[0].ContainerID, gids[0].HostID = gids[0].HostID, gids[0].ContainerID
	}
	f, err := newUserns(uids, gids)
	if err != nil {
		return nil, err
	}
	r.maps[k] = f
	return f, nil
}

// newUserns makes a user namespace with the given maps. The namespace needs a
// process to be born in: ours is traced, so that it stops at its exec and is
// ended before it runs one instruction of its own (the way of containerd's
// mount package).
func newUserns(uids, gids []syscall.SysProcIDMap) (*os.File, error) {
	runtime.LockOSThread() // ptrace wants its tracer's thread to live
	defer runtime.UnlockOSThread()
	pid, err := syscall.ForkExec("/proc/self/exe", []string{"userns"}, &syscall.ProcAttr{
		Sys: &syscall.SysProcAttr{
			Cloneflags: unix.CLONE_NEWUSER, Ptrace: true, Pdeathsig: syscall.SIGKILL,
			UidMappings: uids, GidMappings: gids,
		},
	})
	if err != nil {
		return nil, fmt.Errorf("make user namespace: %w", err)
	}
	defer func() {
		_ = unix.Kill(pid, unix.SIGKILL)
		var ws unix.WaitStatus
		for {
			if _, err := unix.Wait4(pid, &ws, 0, nil); !errors.Is(err, unix.EINTR) && (err != nil || ws.Exited() || ws.Signaled()) {
				return
			}
		}
	}()
	f, err := os.Open(fmt.Sprintf("/proc/%d/ns/user", pid))
	if err != nil {
		return nil, fmt.Errorf("open user namespace: %w", err)
	}
	return f, nil
}
