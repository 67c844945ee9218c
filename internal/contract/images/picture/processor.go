package picture

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/child"
)

// Processor makes variants in child processes. It may be used from many goroutines, each with its
// own work directory.
type Processor struct {
	// Command starts the child: the program and its first arguments. Run appends others, with which
	// the program calls Child; it exits with the code that Child returns.
	Command []string
	Limits  Limits
}

// Run believes a report only as far as it can be checked: its length is bounded, and it is compared
// with the task and with the files there are. What the variants show is up to the child.

// originalName is the name of the copy in the work directory.
const originalName = "original"

// Run makes a variant of the original for each size and writes them to workDir. This must be an
// empty directory that is used for nothing else, and the caller removes it also after an error.
// Sizes are 1 to MaxSize, at most MaxSizes of them; duplicates are merged, and variants are in
// ascending order. No child is left when Run returns, and none outlives this process. Errors: an
// Error about the picture, the cause of ctx if that has ended, and those of the disk and of from.
func (p *Processor) Run(ctx context.Context, from io.Reader, sizes []int, workDir string) (Info,
	[]Variant, error) {
	t := task{limits: p.Limits, sizes: slices.Compact(slices.Sorted(slices.Values(sizes)))}
	if err := errors.Join(p.validate(), checkSizes(t.sizes)); err != nil {
		return Info{}, nil, err
	}
	in, err := copyTo(filepath.Join(workDir, originalName), from)
	if err != nil {
		return Info{}, nil, err
	}
	defer in.Close()
	r, err := p.runChild(ctx, in, t, workDir)
	if err != nil {
		return Info{}, nil, err
	}
	if r.Error != nil {
		return Info{}, nil, errorf(r.Error.Type, "%s", r.Error.Msg)
	}
	if err := r.check(t, workDir); err != nil {
		return Info{}, nil, errorf(Crashed, "the child's report is wrong: %v", err)
	}
	return r.Info, r.Variants, nil
}

// validate refuses a Processor that lacks its command or one of its limits.
func (p *Processor) validate() error {
	switch {
	case len(p.Command) == 0:
		return errors.New("picture: Command is required")
	case p.Limits.Pixels <= 0 || p.Limits.Memory <= 0 || p.Limits.Timeout < time.Millisecond:
		return errors.New("picture: Limits are required")
	}
	return nil
}

// copyTo copies a reader to a new file and returns the file, positioned at its beginning.
func copyTo(path string, from io.Reader) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	if _, err := io.Copy(f, from); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// The child's output, in bytes: the longest report, and how much of its standard error is kept.
const (
	maxReport = 64 << 10
	maxStderr = 4 << 10
)

// runChild runs the child and returns its report, or an Error if it ended without one. Its
// environment is empty, so no secret of the server reaches the child.
func (p *Processor) runChild(ctx context.Context, in *os.File, t task, workDir string) (report,
	error) {
	stderr := &child.Head{Max: maxStderr}
	process := child.Process{Args: slices.Concat(p.Command, t.args()), Dir: workDir, Stdin: in,
		Stderr: stderr, MaxStdout: maxReport, Timeout: p.Limits.Timeout}
	stdout, err := process.Run(ctx)
	var notStarted *child.StartError
	switch {
	case ctx.Err() != nil, errors.As(err, &notStarted):
		return report{}, err
	case errors.Is(err, child.ErrTimeout):
		return report{}, errorf(Timeout, "the child took longer than %v", p.Limits.Timeout)
	case err != nil:
		return report{}, childError(err, string(stderr.Text))
	}
	var r report
	if err := json.Unmarshal(stdout, &r); err != nil {
		return report{}, errorf(Crashed, "the child's report is wrong: %v", err)
	}
	return r, nil
}

// outOfMemoryMessages are the messages of a Go runtime that gets no more memory from the system.
// The last one reports a fault in the runtime's own code, which cannot handle that either; a
// fault in other code is a panic with another message.
var outOfMemoryMessages = []string{"out of memory", "cannot allocate memory",
	"SIGSEGV: segmentation violation\nPC="}

// childError says why a child ended without a report. The first line of its standard error goes
// into the message.
func childError(err error, stderr string) error {
	line, _, _ := strings.Cut(strings.TrimSpace(stderr), "\n")
	for _, words := range outOfMemoryMessages {
		if strings.Contains(stderr, words) {
			return errorf(OutOfMemory, "%s", line)
		}
	}
	return errorf(Crashed, "the child ended with %v: %s", err, line)
}

// check compares a report with the task and the files in the work directory, so that even a child
// that a picture has taken over can name no other file. It makes the paths absolute.
func (r *report) check(t task, workDir string) error {
	if len(r.Variants) != len(t.sizes) || !slices.ContainsFunc(formats, func(f format) bool {
		return f.mime == r.Info.MIME
	}) {
		return fmt.Errorf("%d variants of an %q", len(r.Variants), r.Info.MIME)
	}
	for i := range r.Variants {
		v := &r.Variants[i]
		longer := max(v.Width, v.Height)
		if v.Size != t.sizes[i] || longer > v.Size || longer > max(r.Info.Width, r.Info.Height) ||
			min(v.Width, v.Height) < 1 {
			return fmt.Errorf("%d × %d pixels for size %d", v.Width, v.Height, v.Size)
		}
		if (v.MIME != "image/jpeg" && v.MIME != "image/png") || v.Path != fileName(longer, v.MIME) {
			return fmt.Errorf("a file %q of type %q", v.Path, v.MIME)
		}
		v.Path = filepath.Join(workDir, v.Path)
		info, err := os.Lstat(v.Path)
		if err != nil {
			return err
		}
		if !info.Mode().IsRegular() || info.Size() != v.Bytes {
			return fmt.Errorf("%s is not a file of %d bytes", v.Path, v.Bytes)
		}
	}
	return nil
}
