//go:build unix

package images_test

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/millrace/millrace/internal/contract/images"
	"github.com/millrace/millrace/internal/contract/images/picture"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/testkit"
)

// pipedProcessor is a processor all of whose variants but the first come through pipes: the attempt
// stores each when the test writes it.
type pipedProcessor struct {
	images.Processor
	made chan []pipe // of each run
}

// pipe is a variant that has not been written yet.
type pipe struct {
	path string
	data []byte
}

func (p *pipedProcessor) Run(ctx context.Context, original io.Reader, sizes []int,
	dir string) (picture.Info, []picture.Variant, error) {
	info, variants, err := p.Processor.Run(ctx, original, sizes, dir)
	var all []pipe
	for i, v := range variants {
		data, readErr := os.ReadFile(v.Path)
		if i > 0 && readErr == nil && os.Remove(v.Path) == nil &&
			syscall.Mkfifo(v.Path, 0o600) == nil {
			all = append(all, pipe{v.Path, data})
		}
	}
	p.made <- all
	return info, variants, err
}

// reached waits until an attempt is about to store a variant, and so has stored those before it.
func (p pipe) reached(t *testing.T) *os.File {
	t.Helper()
	f, err := os.OpenFile(p.path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// write lets the attempt store the variant.
func (p pipe) write(t *testing.T, f *os.File) {
	t.Helper()
	if _, err := f.Write(p.data); err != nil {
		t.Error(err)
	}
	f.Close()
}

// A file is deleted by one node while another makes its variants. Whenever that is, nothing of the
// file is left.
func TestDeletionOnAnotherNode(t *testing.T) {
	p := &pipedProcessor{Processor: processor(), made: make(chan []pipe, 1)}
	c := config()
	c.Sizes, c.Processor = []int{8, 16, 64}, p
	begin := func(t *testing.T, w *world) (r receipt, j *job.Job, ended <-chan engine.Outcome,
		leave func()) {
		t.Helper()
		r = w.put(t, pngOf(t, 90, 30))
		j = w.mustClaim(t, r.JobID)
		ctx, leave := context.WithCancel(context.Background())
		t.Cleanup(leave)
		out := make(chan engine.Outcome, 1)
		go func() { out <- w.images.Handle(ctx, j) }()
		return r, j, out, leave
	}
	remove := func(t *testing.T, w *world, fileID string) {
		t.Helper()
		id := testkit.DecodeReply[receipt](t,
			w.Do(t, "DELETE", filesPath+"/"+fileID, "").WantStatus(t, 202)).JobID
		w.attempt(t, id)
		w.status(t, id, completed)
	}
	nothingLeft := func(t *testing.T, w *world, r receipt) {
		t.Helper()
		assertEqual(t, "objects", strings.Join(w.stored(t), " "), "")
		assertEqual(t, "files", strings.Join(files(t, filepath.Join(w.dir, bucket)), " "), "")
		assertEqual(t, "variants", len(w.file(t, r.FileID, "deleted").Variants), 0)
	}
	testkit.OnEveryStore(t, func(t *testing.T, place testkit.Database) {
		w := newWorldAt(t, place, c)
		other := w.node(t, config())
		t.Run("G-IP-15 G-IP-07 between two variants: what is written after it is removed",
			func(t *testing.T) {
				r, j, ended, _ := begin(t, w)
				pipes := <-p.made
				second := pipes[0].reached(t)
				remove(t, other, r.FileID)
				assertEqual(t, "objects once it is deleted", len(w.stored(t)), 0)
				pipes[0].write(t, second)
				pipes[1].write(t, pipes[1].reached(t))
				if err := w.end(j, <-ended); err != nil {
					t.Fatal(err)
				}
				assertEqual(t, "reason", text(other.status(t, r.JobID, failed).LastErrorType),
					"file_deleted")
				nothingLeft(t, other, r)
			})
		t.Run("G-IP-15 and the attempt is cut off in the midst of the next", func(t *testing.T) {
			r, j, ended, leave := begin(t, w)
			pipes := <-p.made
			second := pipes[0].reached(t)
			remove(t, other, r.FileID)
			pipes[0].write(t, second)
			third := pipes[1].reached(t)
			leave()                           // its lock is lost, or its node stops
			_, _ = third.Write(pipes[1].data) // which may not be read any more
			third.Close()
			o := <-ended
			nothingLeft(t, other, r)
			if err := w.end(j, o); err != nil {
				t.Fatal(err)
			}
			other.attempt(t, r.JobID)
			assertEqual(t, "reason", text(other.status(t, r.JobID, failed).LastErrorType),
				"file_deleted")
			nothingLeft(t, other, r)
		})
		t.Run("IP-029 after the attempt has looked for the last time: its job is completed, its "+
			"variants are removed", func(t *testing.T) {
			r, j, ended, _ := begin(t, w)
			for _, v := range <-p.made {
				v.write(t, v.reached(t))
			}
			o := <-ended
			remove(t, other, r.FileID)
			if err := w.end(j, o); err != nil {
				t.Fatal(err)
			}
			other.status(t, r.JobID, completed)
			nothingLeft(t, other, r)
			other.Do(t, "GET", filesPath+"/"+r.FileID+"/variants/16", "").WantError(t, 410,
				"FILE_DELETED")
		})
		t.Run("IP-029 asked for on both nodes at once, it is one job", func(t *testing.T) {
			r := w.put(t, pngOf(t, 9, 9))
			before := w.jobs(t)
			all := testkit.RunConcurrently(16, func(i int) string {
				node := []*world{w, other}[i%2]
				if i < 8 {
					return node.create(t, "delete_file", r.FileID).JobID
				}
				return testkit.DecodeReply[receipt](t,
					node.Do(t, "DELETE", filesPath+"/"+r.FileID, "").WantStatus(t, 202)).JobID
			})
			for _, id := range all {
				assertEqual(t, "job", id, all[0])
			}
			assertEqual(t, "jobs", w.jobs(t)-before, 1)
		})
	})
}
