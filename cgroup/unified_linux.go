package cgroup

import (
	"fmt"
	"os"

	"github.com/containerd/cgroups/v3/cgroup2"
)

// unified is a group on cgroup v2 as containerd/cgroups sees it. The hierarchy is
// reached through a descriptor of its root.
func unified(root *os.File, parent, name string) (*cgroup2.Manager, error) {
	mount := fmt.Sprintf("/proc/self/fd/%d", root.Fd())
	return cgroup2.Load("/"+parent+"/"+name, cgroup2.WithMountpoint(mount))
}

// enable turns a controller on for the group, in the root's and the parent's
// cgroup.subtree_control.
func enable(m *cgroup2.Manager, controller string) error {
	return m.ToggleControllers([]string{controller}, cgroup2.Enable)
}

// resources translates one limit.
func resources(k kind, lim Limits) *cgroup2.Resources {
	switch k {
	case memoryMax:
		return &cgroup2.Resources{Memory: &cgroup2.Memory{Max: &lim.Memory}}
	case memorySwap:
		return &cgroup2.Resources{Memory: &cgroup2.Memory{Swap: &lim.Swap}}
	case memoryHigh:
		return &cgroup2.Resources{Memory: &cgroup2.Memory{High: &lim.MemoryHigh}}
	case oomGroup:
		return &cgroup2.Resources{Memory: &cgroup2.Memory{OOMGroup: &lim.OOMGroup}}
	case pidsMax:
		return &cgroup2.Resources{Pids: &cgroup2.Pids{Max: lim.Pids}}
	case cpuMax:
		quota, period := cpuQuota(lim.CPU)
		return &cgroup2.Resources{CPU: &cgroup2.CPU{Max: cgroup2.NewCPUMax(&quota, &period)}}
	}
	io := &cgroup2.IO{}
	for _, d := range lim.IO {
		if d.Read > 0 {
			io.Max = append(io.Max, cgroup2.Entry{Type: cgroup2.ReadBPS, Major: d.Major, Minor: d.Minor, Rate: uint64(d.Read)})
		}
		if d.Write > 0 {
			io.Max = append(io.Max, cgroup2.Entry{Type: cgroup2.WriteBPS, Major: d.Major, Minor: d.Minor, Rate: uint64(d.Write)})
		}
	}
	return &cgroup2.Resources{IO: io}
}
