package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// disk is the file system of a data directory, for faults that need one of its own: a small one in
// memory, which is filled, or one on an image, of which a copy has what was synced alone, and which
// becomes read-only. The directory is that of the node, or of the PostgreSQL server where that is
// to lose its power.
type disk struct {
	dir     string
	image   string // "" for one in memory
	mounted bool
}

// mountFaults need a file system of the run's own.
var mountFaults = []string{faultDiskFull, faultReadOnlyDisk, faultPowerCut}

// mountFor mounts what the faults of a plan need; nil for nothing.
func mountFor(p *plan, faults []fault) (*disk, error) {
	if len(faults) == 0 || !slices.Contains(mountFaults, p.Only) {
		return nil, nil
	}
	d := &disk{dir: filepath.Join(p.Dir, "node0")}
	if p.Store == "postgres" {
		d.dir = serverDir(p)
	}
	if err := os.MkdirAll(d.dir, 0o700); err != nil {
		return nil, err
	}
	if p.Only == faultDiskFull {
		err := command("mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", d.dir)
		d.mounted = err == nil
		return d, err
	}
	d.image = filepath.Join(p.Dir, "disk.img")
	return d, errors.Join(command("truncate", "-s", "1G", d.image),
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

// mount mounts the image, as it is, on the data directory. What nobody syncs reaches the device as
// late as the kernel allows, so that a loss of power takes more with it.
func (d *disk) mount() error {
	err := command("mount", "-o", "loop,commit=600,errors=remount-ro", d.image, d.dir)
	d.mounted = err == nil
	return err
}

// unmountTimeout bounds how long the last process that was killed may keep the file system.
const unmountTimeout = 10 * time.Second

// close ends what mountFor has started, if there is anything.
func (d *disk) close() error {
	if d == nil || !d.mounted {
		return nil
	}
	return d.unmount()
}

// unmount waits for processes that were killed, which may have files open for a moment.
func (d *disk) unmount() error {
	err := command("umount", d.dir)
	for start := time.Now(); (err != nil) && (time.Since(start) < unmountTimeout); {
		time.Sleep(10 * time.Millisecond)
		err = command("umount", d.dir)
	}
	d.mounted = (err != nil)
	return err
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
	for !errors.Is(err, syscall.ENOSPC) {
		if err != nil {
			return err
		}
		_, err = f.Write(block)
	}
	fn()
	return nil
}

// losePower stops whoever writes to the disk, copies what its device has at this moment, and goes
// on with the copy. Whatever was not synced is lost.
func (d *disk) losePower(freeze func() error, kill func() error) error {
	if err := freeze(); err != nil {
		return err
	}
	copied := d.image + ".cut"
	if err := command("cp", "--sparse=always", d.image, copied); err != nil {
		return err
	}
	if err := errors.Join(kill(), d.unmount()); err != nil {
		return err
	}
	if err := os.Rename(copied, d.image); err != nil {
		return err
	}
	return d.mount()
}

// forbidWrites has the kernel believe that the file system is damaged, so that it refuses all
// writes until it is unmounted.
func (d *disk) forbidWrites() error {
	device, err := exec.Command("findmnt", "-no", "SOURCE", d.dir).Output()
	if err != nil {
		return err
	}
	name := filepath.Base(strings.TrimSpace(string(device)))
	return os.WriteFile("/sys/fs/ext4/"+name+"/trigger_fs_error", []byte("1"), 0)
}

// repair checks the file system of which the kernel believes that it is damaged, and mounts it.
func (d *disk) repair() error {
	if err := d.unmount(); err != nil {
		return err
	}
	err := command("e2fsck", "-p", d.image)
	if ended, ok := errors.AsType[*exec.ExitError](err); ok && ended.ExitCode() == 1 {
		err = nil // it has repaired what there was
	}
	return errors.Join(err, d.mount())
}

// freezeProcess stops a process, and returns when all of its threads have stopped, or it has ended.
func freezeProcess(pid int) error {
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		return err
	}
	for {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		if err != nil || !slices.ContainsFunc(threads, isRunning) {
			return err
		}
		time.Sleep(time.Millisecond)
	}
}

// isRunning reports whether the thread of a /proc stat file has not stopped. One that has ended has
// no such file.
func isRunning(stat string) bool {
	text, err := os.ReadFile(stat)
	if err != nil {
		return false
	}
	_, state, _ := strings.Cut(string(text), ") ")
	return !strings.HasPrefix(state, "T") && !strings.HasPrefix(state, "Z")
}
