package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// docker makes a contestant of the daemon that answers (DOCKER_HOST names another than the usual one): an image of busybox alone, imported
// for this run and removed with it, and no network, which is docker at its fastest.
func (b *bench) docker() *contestant {
	image := fmt.Sprintf("agentos-bench:%d", os.Getpid())
	c := &contestant{name: "docker run", once: func() (time.Duration, error) {
		return timed(b.dockerCommand("run", "--rm", "--network=none", image, "/bin/true"))
	}}
	c.err = func() error {
		if _, err := exec.LookPath("docker"); err != nil {
			return errors.New("not installed")
		}
		if out, err := b.dockerCommand("version", "--format", "{{.Server.Version}}").CombinedOutput(); err != nil {
			return fmt.Errorf("no daemon answers: %s", strings.TrimSpace(string(out)))
		}
		box, err := os.ReadFile("/bin/busybox")
		if err != nil {
			return err
		}
		var root bytes.Buffer
		t := tar.NewWriter(&root)
		err = errors.Join(
			t.WriteHeader(&tar.Header{Name: "bin/", Typeflag: tar.TypeDir, Mode: 0o755}),
			t.WriteHeader(&tar.Header{Name: "bin/true", Mode: 0o755, Size: int64(len(box))}))
		_, werr := t.Write(box)
		if err = errors.Join(err, werr, t.Close()); err != nil {
			return err
		}
		load := b.dockerCommand("import", "-", image)
		load.Stdin = &root
		if out, err := load.CombinedOutput(); err != nil {
			return fmt.Errorf("docker import: %s", strings.TrimSpace(string(out)))
		}
		b.undo = append(b.undo, func() { _ = b.dockerCommand("rmi", "--force", image).Run() })
		return nil
	}()
	return c
}

func (b *bench) dockerCommand(args ...string) *exec.Cmd {
	c := b.command("docker", args...)
	if h := os.Getenv("DOCKER_HOST"); h != "" {
		c.Env = append(c.Env[:len(c.Env):len(c.Env)], "DOCKER_HOST="+h)
	}
	return c
}
