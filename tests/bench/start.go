package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// timed runs a command to its end and answers how long that took, as its caller sees it.
func timed(c *exec.Cmd) (time.Duration, error) {
	var stderr bytes.Buffer
	c.Stderr = &stderr
	start := time.Now()
	err := c.Run()
	d := time.Since(start)
	if err != nil {
		return 0, fmt.Errorf("%w: %s", err, strings.TrimSpace(stderr.String()))
	}
	return d, nil
}

// starts measures start to exit of /bin/true.
func (b *bench) starts(n int) error {
	cs := []*contestant{
		{name: "plain exec", once: func() (time.Duration, error) { return timed(b.command("/bin/true")) }},
		{name: "bubblewrap, seccomp filter", once: b.bwrap},
		b.oci("crun"),
		b.oci("runc"),
		b.docker(),
		{name: "agentos run, strict", once: func() (time.Duration, error) {
			return timed(b.agentos("run", "--policy", "strict", "--", "/bin/true"))
		}},
		{name: "agentos run, permissive", once: func() (time.Duration, error) {
			return timed(b.agentos("run", "--policy", "permissive", "--", "/bin/true"))
		}},
		{name: "agentos version", note: "the command line alone", once: func() (time.Duration, error) { return timed(b.agentos("version")) }},
	}
	end, err := b.resident("strict", "bench-exec")
	second := &contestant{name: "agentos exec, second process", err: err, once: func() (time.Duration, error) {
		return timed(b.agentos("exec", "bench-exec", "--", "/bin/true"))
	}}
	rounds(n, append(cs, second))
	if end != nil {
		end()
	}
	cs = append(cs, second)
	table("start to exit of /bin/true", cs)
	if bw, a := cs[1].median(), cs[5].median(); bw > 0 && a > 0 {
		fmt.Printf("%-34s %12s %8.2f  goal 1.20\n", "agentos strict / bubblewrap", "", float64(a)/float64(bw))
	}
	return nil
}

// resident keeps a jail running; the answer ends it.
func (b *bench) resident(policy, name string) (func(), error) {
	c := b.agentos("run", "--policy", policy, "--name", name, "--", "sleep", "600")
	var stderr bytes.Buffer
	c.Stderr = &stderr
	if err := c.Start(); err != nil {
		return nil, err
	}
	end := func() { _ = b.agentos("kill", name).Run(); _ = c.Wait() }
	for range 100 {
		if b.agentos("exec", name, "--", "/bin/true").Run() == nil {
			return end, nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	_ = c.Process.Kill()
	_ = c.Wait()
	return nil, fmt.Errorf("no jail to enter: %s", strings.TrimSpace(stderr.String()))
}

// filter is a seccomp program of the size that sandboxes use: architecture, then forty refused calls one by one.
func filter() []byte {
	var out bytes.Buffer
	op := func(code uint16, jt, jf uint8, k uint32) {
		_ = binary.Write(&out, binary.LittleEndian, struct {
			Code   uint16
			JT, JF uint8
			K      uint32
		}{code, jt, jf, k})
	}
	const refused = 40
	op(0x20, 0, 0, 4)                  // load arch
	op(0x15, 0, refused+1, 0xc000003e) // not x86_64: to the end
	op(0x20, 0, 0, 0)                  // load nr
	for i := range uint8(refused) {    // equal: to EPERM
		op(0x15, refused-i, 0, 400+uint32(i)*4)
	}
	op(0x06, 0, 0, 0x7fff0000)
	op(0x06, 0, 0, 0x00050001)
	return out.Bytes()
}

func (b *bench) bwrap() (time.Duration, error) {
	f, err := os.CreateTemp(b.dir, "filter")
	if err != nil {
		return 0, err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	if _, err := f.Write(filter()); err != nil {
		return 0, err
	}
	if _, err := f.Seek(0, 0); err != nil {
		return 0, err
	}
	c := b.command("bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib",
		"--symlink", "usr/lib64", "/lib64", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--bind", b.ws, b.ws, "--chdir", b.ws, "--seccomp", "3", "--", "/bin/true")
	c.ExtraFiles = []*os.File{f}
	return timed(c)
}

// oci makes a contestant of an OCI runtime: its own default spec, busybox as root file system.
func (b *bench) oci(runtime string) *contestant {
	c := &contestant{name: runtime + " run"}
	bundle := filepath.Join(b.dir, runtime)
	c.err = func() error {
		if _, err := exec.LookPath(runtime); err != nil {
			return errors.New("not installed")
		}
		if err := os.MkdirAll(filepath.Join(bundle, "rootfs/bin"), 0o755); err != nil {
			return err
		}
		for _, d := range []string{"proc", "sys", "dev"} {
			if err := os.MkdirAll(filepath.Join(bundle, "rootfs", d), 0o755); err != nil {
				return err
			}
		}
		box, err := os.ReadFile("/bin/busybox")
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(bundle, "rootfs/bin/true"), box, 0o755); err != nil {
			return err
		}
		spec := exec.Command(runtime, "spec")
		spec.Dir = bundle
		if out, err := spec.CombinedOutput(); err != nil {
			return fmt.Errorf("%s spec: %s", runtime, out)
		}
		return configure(filepath.Join(bundle, "config.json"))
	}()
	n := 0
	c.once = func() (time.Duration, error) {
		n++
		args := []string{"run", "--bundle", bundle, fmt.Sprintf("agentos-bench-%d-%d", os.Getpid(), n)}
		if runtime == "crun" {
			args = append([]string{"--cgroup-manager=disabled"}, args...)
		}
		return timed(b.command(runtime, args...))
	}
	return c
}

func configure(path string) error {
	raw, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var spec map[string]any
	if err := json.Unmarshal(raw, &spec); err != nil {
		return err
	}
	process, ok := spec["process"].(map[string]any)
	if !ok {
		return errors.New("the runtime's spec has no process")
	}
	process["terminal"], process["args"] = false, []string{"/bin/true"}
	if linux, ok := spec["linux"].(map[string]any); ok && strings.Contains(path, "crun") { // it knows no hybrid cgroup layout; without cgroups it is the faster for it
		delete(linux, "resources")
		linux["namespaces"] = slices.DeleteFunc(linux["namespaces"].([]any), func(n any) bool {
			m, ok := n.(map[string]any)
			return ok && m["type"] == "cgroup"
		})
	}
	raw, err = json.Marshal(spec)
	if err != nil {
		return err
	}
	return os.WriteFile(path, raw, 0o644)
}
