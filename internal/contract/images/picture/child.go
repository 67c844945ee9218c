package picture

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/child"
)

// The parent (processor.go) and the child exchange:
//
//	arguments   the limits and the sizes (task)
//	stdin       the original
//	directory   the current one, where the child creates the files of the variants
//	stdout      one report in JSON
//	stderr      a text for the Error, if there is no report
//	exit code   0 with a report, also with one that has an Error
//
// A picture that cannot be decoded is a regular result and has a report. Without one something
// else went wrong, such as a full disk or the end of the memory, and another attempt may succeed.

// report is the result of the child, which it writes to its standard output before it exits.
type report struct {
	Info     Info
	Variants []Variant // Path is the bare name of a file in the work directory
	Error    *Error
}

// task is the work of one child.
type task struct {
	limits Limits
	sizes  []int // ascending, without duplicates
}

// args are the command line arguments of the child. parseTask reads them.
func (t task) args() []string {
	var sizes []string
	for _, s := range t.sizes {
		sizes = append(sizes, strconv.Itoa(s))
	}
	return []string{"-pixels", strconv.FormatInt(t.limits.Pixels, 10), "-memory",
		strconv.FormatInt(t.limits.Memory, 10),
		"-time", t.limits.Timeout.String(), "-sizes", strings.Join(sizes, ",")}
}

// parseTask reads what args wrote. It refuses anything else, as a missing limit must not become no
// limit.
func parseTask(args []string) (task, error) {
	var t task
	flags := flag.NewFlagSet("picture", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.Int64Var(&t.limits.Pixels, "pixels", 0, "")
	flags.Int64Var(&t.limits.Memory, "memory", 0, "")
	flags.DurationVar(&t.limits.Timeout, "time", 0, "")
	list := flags.String("sizes", "", "")
	if err := flags.Parse(args); err != nil {
		return task{}, err
	}
	if t.limits.Pixels <= 0 || t.limits.Memory <= 0 || t.limits.Timeout < time.Millisecond ||
		flags.NArg() > 0 {
		return task{}, errors.New("the child of a picture needs -pixels, -memory, -time and -sizes")
	}
	for s := range strings.SplitSeq(*list, ",") {
		n, err := strconv.Atoi(s)
		if err != nil {
			return task{}, err
		}
		t.sizes = append(t.sizes, n)
	}
	return t, checkSizes(t.sizes)
}

// checkSizes refuses sizes beyond MaxSize and MaxSizes, and none at all. The parent and the child
// both call it.
func checkSizes(sizes []int) error {
	if len(sizes) == 0 || len(sizes) > MaxSizes || slices.Min(sizes) < 1 ||
		slices.Max(sizes) > MaxSize {
		return fmt.Errorf("sizes must be 1 to %d of 1 to %d", MaxSizes, MaxSize)
	}
	return nil
}

// Child is the main function of the child process. It applies the limits, reads the picture from
// in, writes the variants to the current directory and the report to out, and returns the exit
// code. A code other than zero means that there is no report. It is called once, in a process that
// does nothing else.
func Child(in io.Reader, out io.Writer, args []string) int {
	t, err := startTask(args)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	debug.SetMemoryLimit(t.limits.Memory / 8 * 7) // the rest is for memory outside the Go heap
	var r report
	r.Info, r.Variants, err = t.run(in)
	if err != nil && !errors.As(err, &r.Error) {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	r.Info.Peak = peakMemory()
	if err := json.NewEncoder(out).Encode(r); err != nil {
		return 1
	}
	return 0
}

// startTask parses the task and applies its limits to this process. The limits hold before the
// first byte of the picture is read.
func startTask(args []string) (task, error) {
	t, err := parseTask(args)
	if err != nil {
		return task{}, err
	}
	return t, applyLimits(t.limits)
}

// applyLimits sets the limits that the kernel enforces on this process. Processor time counts on
// every processor and so exceeds the timeout of the parent; the limit only stops an orphan.
func applyLimits(l Limits) error {
	return child.Limits{
		Memory:    l.Memory,
		CPU:       (l.Timeout + time.Second) * time.Duration(runtime.NumCPU()),
		FileSize:  l.Memory,
		OpenFiles: 64,
	}.Apply()
}

// peakMemory is the largest resident memory of this process so far, in bytes; 0 where the system
// does not say it in /proc.
func peakMemory() int64 {
	status, _ := os.ReadFile("/proc/self/status")
	_, after, _ := strings.Cut(string(status), "\nVmHWM:")
	number, _, _ := strings.Cut(strings.TrimSpace(after), " ")
	kib, _ := strconv.ParseInt(number, 10, 64)
	return kib << 10
}

// run makes the variants in the current directory. Its errors are of the type Error if the picture
// is the reason. Width and height of the Info are measured on the upright picture; Peak is not set.
func (t task) run(in io.Reader) (Info, []Variant, error) {
	data, err := readAll(in)
	if err != nil {
		return Info{}, nil, err
	}
	h, err := readHeader(data, t.limits.Pixels)
	if err != nil {
		return Info{}, nil, err
	}
	r, err := h.decode(t.sizes)
	if err != nil {
		return Info{}, nil, err
	}
	variants, err := h.variants(r, t.sizes)
	if err != nil {
		return Info{}, nil, err
	}
	info := Info{MIME: h.format.mime, Width: h.width, Height: h.height, Bytes: int64(len(data))}
	if h.orientation.transpose {
		info.Width, info.Height = h.height, h.width
	}
	return info, variants, nil
}

// readAll reads a file, into a buffer of exactly its size if that is known: a buffer that grows
// would take more of the limited memory.
func readAll(in io.Reader) ([]byte, error) {
	f, ok := in.(fs.File)
	if !ok {
		return io.ReadAll(in)
	}
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return io.ReadAll(in)
	}
	data := make([]byte, info.Size())
	_, err = io.ReadFull(in, data)
	return data, err
}

// variants makes the files, the largest first, as fit requires. A file is encoded while the next
// picture is made. All sizes that are not smaller than the picture share one file.
func (h *header) variants(r *raster, sizes []int) ([]Variant, error) {
	mime, longer := h.output(r), max(r.width, r.height)
	made := make([]Variant, len(sizes))
	encoded := func() error { return nil }
	for i, size := range slices.Backward(sizes) {
		if i+1 < len(sizes) && size >= longer {
			continue
		}
		width, height := fitted(r.width, r.height, size)
		small := r.fit(width, height, h.orientation)
		if err := encoded(); err != nil {
			return nil, err
		}
		encoded = start(func() (err error) {
			made[i], err = h.variant(size, min(size, longer), small, mime)
			return err
		})
	}
	if err := encoded(); err != nil {
		return nil, err
	}
	for i, size := range sizes {
		if made[i].Path == "" {
			made[i] = made[len(made)-1]
			made[i].Size = size
		}
	}
	return made, nil
}

// start runs fn in a goroutine. The function that it returns waits for the result, once.
func start(fn func() error) (wait func() error) {
	result := make(chan error, 1)
	go func() { result <- fn() }()
	return func() error { return <-result }
}

// fitted returns the dimensions of a picture that is made smaller until its longer side is at most
// size. Both sides are rounded to whole pixels and have at least one.
func fitted(width, height, size int) (int, int) {
	longer := max(width, height)
	side := min(size, longer)
	shrink := func(n int) int { return max(1, (n*side+longer/2)/longer) }
	return shrink(width), shrink(height)
}

// variant makes the file of a picture whose longer side is side. The file must not exist; if
// variant fails it may be incomplete, and the caller of Run removes it with the work directory.
func (h *header) variant(size, side int, small *raster, mime string) (Variant, error) {
	v := Variant{Size: size, Width: small.width, Height: small.height, MIME: mime,
		Path: fileName(side, mime)}
	f, err := os.OpenFile(v.Path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return Variant{}, err
	}
	defer f.Close()
	if err := h.encode(f, small, mime); err != nil {
		return Variant{}, err
	}
	v.Bytes, err = f.Seek(0, io.SeekCurrent)
	if err != nil {
		return Variant{}, err
	}
	return v, f.Close()
}

// fileName returns the name of the file of a variant by its longer side and type. The parent
// accepts no other name from the child (report.check).
func fileName(side int, mime string) string {
	if mime == "image/jpeg" {
		return strconv.Itoa(side) + ".jpg"
	}
	return strconv.Itoa(side) + ".png"
}
