package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/cmd/millrace/internal/cli"
)

// The downloads come from an HTTP server in this process, whose files are copies in memory. So the
// demo knows every byte that must be stored, and how often each resource must be requested.

// fetchBoxSettings make a failed download wait less for its next attempt than by default.
var fetchBoxSettings = []string{"fetchbox.backoff_base=200ms"}

// The downloads are the first files of the listing that are small enough, and three special ones.
const (
	maxDownloads    = 12
	maxDownloadSize = 1 << 20 // bytes

	movedID   = "moved"   // redirects to redirectTargetID
	flakyID   = "once"    // fails the first time
	missingID = "missing" // does not exist

	redirectTargetID = "here" // is in no manifest
)

// origin is the server that the downloads come from. It counts the requests for each resource.
type origin struct {
	server *http.Server
	url    string

	mu sync.Mutex
	// files has the content, by resource id.
	files map[string][]byte
	// requests counts the requests, by resource id.
	requests map[string]int
}

// newOrigin makes an origin with a copy of some files, which cannot change while the demo runs.
// Files that are too large, or cannot be read, are left out.
func newOrigin(files *listing) *origin {
	o := &origin{files: map[string][]byte{}, requests: map[string]int{}}
	for _, path := range files.order {
		if len(o.files) == maxDownloads {
			break
		}
		if files.files[path].size > maxDownloadSize {
			continue
		}
		text, err := os.ReadFile(filepath.Join(files.root, filepath.FromSlash(path)))
		if err != nil || len(text) > maxDownloadSize {
			continue
		}
		o.files[fmt.Sprintf("file-%02d", len(o.files)+1)] = text
	}
	o.files[flakyID], o.files[redirectTargetID] = []byte("this failed at first\n"),
		[]byte("this has moved\n")
	return o
}

// ServeHTTP answers with the resource that the path names. It is called concurrently: FetchBox
// downloads several resources at a time.
func (o *origin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id := r.URL.Path[1:]
	o.mu.Lock()
	o.requests[id]++
	requests, text := o.requests[id], o.files[id]
	o.mu.Unlock()
	switch {
	case id == movedID:
		http.Redirect(w, r, "/"+redirectTargetID, http.StatusFound)
	case id == flakyID && requests == 1:
		http.Error(w, "not now", http.StatusServiceUnavailable)
	case text == nil:
		http.NotFound(w, r)
	default:
		w.Header().Set("Content-Type", "application/octet-stream")
		_, _ = w.Write(text)
	}
}

// start listens on a free port of the loopback interface.
func (o *origin) start() error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	o.url = "http://" + listener.Addr().String()
	o.server = &http.Server{Handler: o, ReadHeaderTimeout: stallTimeout}
	go func() { _ = o.server.Serve(listener) }() // until it is closed
	return nil
}

// resources returns the ids of the manifest's resources, in order.
func (o *origin) resources() (ids []string) {
	for i := range o.fileCount() {
		ids = append(ids, fmt.Sprintf("file-%02d", i+1))
	}
	return append(ids, movedID, flakyID, missingID)
}

// fileCount returns how many files of the listing the origin has.
func (o *origin) fileCount() int { return len(o.files) - 2 }

// content returns the bytes of a resource; it reports false for the one that does not exist.
func (o *origin) content(id string) ([]byte, bool) {
	if id == movedID {
		id = redirectTargetID
	}
	text, found := o.files[id]
	return text, found
}

// fetchBox shows FetchBox: a manifest of files on a server of the demo's own, of which one has
// moved, one fails the first time and one does not exist. It reports whether every object has the
// bytes of the origin.
//
//	submit ──▶ wait for the job ──▶ wait for its dead letter ──▶ audit ──▶ write
//
// It reads the objects from the server's data directory, not through the server. An error means
// that the server could not be used, or that the whole took longer than stallTimeout.
func (d *demo) fetchBox(ctx context.Context) (bool, error) {
	o := newOrigin(d.files)
	if err := o.start(); err != nil {
		return false, cli.WithCode(cli.ExitUnable, err)
	}
	defer o.server.Close()
	c, err := client.New(client.Config{BaseURL: d.url})
	if err != nil {
		return false, cli.WithCode(cli.ExitFailed, err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, stallTimeout, errors.New("it did not end in time"))
	defer cancel()
	box, started := c.FetchBox(), d.p.Elapsed()
	var m client.FetchBoxManifest
	for _, id := range o.resources() {
		m.Resources = append(m.Resources, client.FetchBoxResource{ID: id, URL: o.url + "/" + id})
	}
	text, err := m.Encode()
	if err != nil {
		return false, cli.WithCode(cli.ExitFailed, err)
	}
	fmt.Fprintf(d.p.Stdout,
		"\nFetchBox: a manifest of %d files, and of one that has moved, one that fails its first "+
			"attempt and one that does not exist\n", o.fileCount())
	receipt, err := box.Submit(ctx, client.FetchBoxSpec{Type: "default", Manifest: text})
	if err != nil {
		return false, cli.RemoteError(ctx, err)
	}
	bar := d.p.NewProgress("fetchbox", int64(receipt.Resources))
	job, err := box.Wait(ctx, receipt.JobID)
	bar.End()
	if err != nil {
		return false, cli.RemoteError(ctx, err)
	}
	took := d.p.Elapsed() - started
	deadLetters, err := awaitDeadLetters(ctx, box, job)
	if err != nil {
		return false, cli.RemoteError(ctx, err)
	}
	wrong := o.audit(job, deadLetters,
		filepath.Join(d.dir, "data", "objects", "millrace", "resources", "default", job.ID))
	o.write(d.p.Stdout, job, deadLetters, took)
	return d.writeProblems(wrong), nil
}

// writeProblems writes a line for each problem and reports whether there is none.
func (d *demo) writeProblems(problems []string) bool {
	for _, text := range problems {
		fmt.Fprintf(d.p.Stdout, "  %s\n", text)
	}
	return len(problems) == 0
}

// awaitDeadLetters waits until there is a dead letter for each download that failed, or until ctx
// ends: dead letters are published some time after the download has failed.
func awaitDeadLetters(ctx context.Context, box *client.FetchBox,
	job client.FetchBoxJob) (deadLetters []client.FetchBoxDeadLetter, err error) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		deadLetters = nil
		for deadLetter, err := range box.DeadLetters(ctx, 0) {
			if err != nil {
				return nil, err
			}
			deadLetters = append(deadLetters, deadLetter)
		}
		if len(deadLetters) >= job.Failed {
			return deadLetters, nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// taskOf returns the task of a dead letter, the zero value if it cannot be read.
func taskOf(deadLetter client.FetchBoxDeadLetter) (task client.FetchBoxTask) {
	_ = json.Unmarshal(deadLetter.Task, &task)
	return task
}

// audit compares the job, its dead letters and its objects, which are files of the folder, with
// what the origin has, and returns the differences. Each resource must have been requested exactly
// once, but the one that fails the first time twice: FetchBox repeats no download that has
// succeeded, and none that another attempt would not change.
func (o *origin) audit(job client.FetchBoxJob, deadLetters []client.FetchBoxDeadLetter,
	folder string) (wrong []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	addProblem := func(format string, args ...any) {
		wrong = append(wrong, fmt.Sprintf(format, args...))
	}
	ids := o.resources()
	if job.Status != client.FetchBoxStatusFailed || job.Total != len(ids) ||
		job.Completed != len(ids)-1 ||
		job.Failed != 1 {
		addProblem("the job is %s with %d of %d done and %d failed", job.Status, job.Completed,
			job.Total, job.Failed)
	}
	if len(deadLetters) != 1 || taskOf(deadLetters[0]).ResourceID != missingID ||
		deadLetters[0].Code != "HTTP_404" {
		addProblem("the dead letters are %+v", deadLetters)
	}
	for _, id := range ids {
		want, found := o.content(id)
		got, err := os.ReadFile(filepath.Join(folder, id))
		missing := errors.Is(err, fs.ErrNotExist)
		if found == missing || !bytes.Equal(got, want) {
			addProblem("%s is stored with %d bytes of %d (%v)", id, len(got), len(want), err)
		}
		attempts := 1
		if id == flakyID {
			attempts++
		}
		if o.requests[id] != attempts {
			addProblem("%s was requested %d times, not %d", id, o.requests[id], attempts)
		}
	}
	return wrong
}

// write prints the job and its dead letters.
func (o *origin) write(w io.Writer, job client.FetchBoxJob, deadLetters []client.FetchBoxDeadLetter,
	took time.Duration) {
	fmt.Fprintf(w, "  job %s is %s: %d of %d, %d failed\n", job.ID, job.Status, job.Completed,
		job.Total, job.Failed)
	for _, deadLetter := range deadLetters {
		task := taskOf(deadLetter)
		fmt.Fprintf(w, "  dead letter %d: %s, %s after %s: %s\n", deadLetter.Offset,
			cli.Printable(task.ResourceID), deadLetter.Code,
			cli.Pluralize(int64(deadLetter.Attempts), "attempt"), cli.Printable(deadLetter.Message))
	}
	var size int64
	for _, id := range o.resources() {
		text, _ := o.content(id)
		size += int64(len(text))
	}
	fmt.Fprintf(w, "\n%d downloads in %s; %d objects with %d bytes compared byte for byte with "+
		"the origin\n", job.Total, cli.FormatDuration(took), job.Completed, size)
}
