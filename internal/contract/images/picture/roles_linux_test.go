package picture

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// roles are what this test binary does when a test starts it as a child: the ways to go wrong.
var roles = map[string]func(args []string) int{
	"hang":   hangForever,
	"deep":   recurseDeeply,
	"parent": parent,
	"panic":  func([]string) int { panic("at the disco") },
	"killed": func([]string) int { return killed(syscall.Kill(os.Getpid(), syscall.SIGKILL)) },
	"look":   inspect,
	"lie":    lieOnce,
}

func killed(err error) int {
	fmt.Fprintln(os.Stderr, "still alive:", err)
	return 0
}

// hangForever opens the pipe in the current directory, which tells the test that it runs, and holds
// it until it is killed.
func hangForever([]string) int {
	f, err := os.OpenFile("alive", os.O_WRONLY, 0)
	if err != nil {
		return 1
	}
	defer f.Close()
	for {
		_ = syscall.Pause() // returns on a signal that is handled
	}
}

// recurseDeeply has a child of its own, which hangs.
func recurseDeeply([]string) int {
	self, err := os.Executable()
	if err == nil {
		err = exec.Command(self, "hang").Run()
	}
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// parent waits for a child that hangs.
func parent(args []string) int {
	p := &Processor{Command: []string{args[0], "hang"}, Limits: wideImage}
	_, _, err := p.Run(context.Background(), strings.NewReader("a picture"), []int{1}, args[1])
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// inspect processes nothing but says what it sees of its surroundings.
func inspect(args []string) int {
	t, err := parseTask(args)
	if err == nil {
		err = applyLimits(t.limits)
	}
	var data, files, core unix.Rlimit
	_ = unix.Getrlimit(unix.RLIMIT_DATA, &data)
	_ = unix.Getrlimit(unix.RLIMIT_FSIZE, &files)
	_ = unix.Getrlimit(unix.RLIMIT_CORE, &core)
	dir, _ := os.Getwd()
	group, _ := unix.Getpgid(0)
	fmt.Fprintln(os.Stderr, len(os.Environ()), dir, group == os.Getpid(), data.Max, files.Max,
		core.Max, err)
	return 1
}

// lies are reports of a child that a picture has taken over. Each is made of a good one for a file
// 1.png of 5 bytes.
var lies = map[string]func(r *report, dir string){
	"another file": func(r *report, _ string) { r.Variants[0].Path = "../../etc/passwd" },
	"a whole path": func(r *report, dir string) {
		r.Variants[0].Path = filepath.Join(dir, "1.png")
	},
	"a link": func(_ *report, _ string) {
		_ = os.Rename("1.png", "2.png") // as long
		_ = os.Symlink("2.png", "1.png")
	},
	"a folder": func(_ *report, _ string) {
		_ = os.Remove("1.png")
		_ = os.Mkdir("1.png", 0o700)
	},
	"another length": func(r *report, _ string) { r.Variants[0].Bytes = 4 },
	"no variant":     func(r *report, _ string) { r.Variants = nil },
	"too many variants": func(r *report, _ string) {
		r.Variants = append(r.Variants, r.Variants[0])
	},
	"another size":    func(r *report, _ string) { r.Variants[0].Size = 2 },
	"a large picture": func(r *report, _ string) { r.Variants[0].Width = 2 },
	"no height":       func(r *report, _ string) { r.Variants[0].Height = 0 },
	"another type":    func(r *report, _ string) { r.Variants[0].MIME = "text/html" },
	"an unknown kind": func(r *report, _ string) { r.Info.MIME = "image/svg+xml" },
	"a long report":   func(r *report, _ string) { r.Info.MIME = strings.Repeat("x", 1<<20) },
}

func lieOnce([]string) int {
	dir, _ := os.Getwd()
	how, _ := io.ReadAll(os.Stdin)
	if err := os.WriteFile("1.png", []byte("12345"), 0o600); err != nil {
		return 1
	}
	r := report{Info: Info{MIME: "image/png", Width: 9, Height: 9, Bytes: 3},
		Variants: []Variant{{Size: 1, Width: 1, Height: 1, Bytes: 5, MIME: "image/png",
			Path: "1.png"}}}
	if change := lies[string(how)]; change != nil {
		change(&r, dir)
	}
	_ = json.NewEncoder(os.Stdout).Encode(r)
	return 0
}
