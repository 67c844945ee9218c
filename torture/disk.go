package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// disk is the file system of the data directory of a node, for faults that need one of its own: a
// small one in memory, which is filled, or one on an image, of which a copy has what was synced
// alone.
type disk struct {
	dir     string
	image   string // "" for one in memory
	mounted bool
}

// mountFor mounts what the faults of a plan need; nil for nothing.
func mountFor(p *plan, faults []fault) (*disk, error) {
	if len(faults) == 0 || (p.Only != faultDiskFull && p.Only != faultPowerCut) {
		return nil, nil
	}
	d := &disk{dir: filepath.Join(p.Dir, "node0")}
	if err := os.MkdirAll(d.dir, 0o700); err != nil {
		return nil, err
	}
	if p.Only == faultDiskFull {
		err := command("mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", d.dir)
		d.mounted = err == nil
		return d, err
	}
	d.image = filepath.Join(p.Dir, "disk.img")
	return d, errors.Join(command("truncate", "-s", "256M", d.image),
		command("mkfs.ext4", "-qF", d.image), d.mount())
}

// command runs a program; its error has what the program has written.
func command(name string, args ...string) error {
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, out)
	}
	return nil
}

// mount mounts the image, as it is, on the data directory.
func (d *disk) mount() error {
	err := command("mount", "-o", "loop", d.image, d.dir)
	d.mounted = err == nil
	return err
}

// unmount ends what mountFor has begun, if there is anything.
func (d *disk) unmount() error {
	if d == nil || !d.mounted {
		return nil
	}
	d.mounted = false
	return command("umount", d.dir)
}

// whileFull fills the file system, calls a function, and frees it again.
func (d *disk) whileFull(fn func()) error {
	path := filepath.Join(d.dir, "filler")
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer os.Remove(path)
	defer f.Close()
	block := make([]byte, 64<<10)
	for err == nil {
		_, err = f.Write(block)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		return err
	}
	fn()
	return nil
}

// cutPower is a loss of power: the node is stopped, what its device has at this moment is copied,
// and the node goes on with the copy. Whatever was not synced is lost.
func (r *run) cutPower(ctx context.Context, n *node) error {
	if err := n.freeze(); err != nil {
		return err
	}
	copied := r.disk.image + ".cut"
	if err := command("cp", "--sparse=always", r.disk.image, copied); err != nil {
		return err
	}
	n.kill()
	if err := r.disk.unmount(); err != nil {
		return err
	}
	if err := os.Rename(copied, r.disk.image); err != nil {
		return err
	}
	if err := r.disk.mount(); err != nil {
		return err
	}
	return r.restart(ctx, n)
}

// freeze stops the process, and returns when all of its threads have stopped.
func (n *node) freeze() error {
	n.signal(syscall.SIGSTOP)
	for {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", n.cmd.Process.Pid))
		if err != nil {
			return err
		}
		_, state, _ := strings.Cut(string(stat), ") ")
		if strings.HasPrefix(state, "T") {
			return nil
		}
		time.Sleep(time.Millisecond)
	}
}
