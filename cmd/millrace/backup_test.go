package main

import (
	"bytes"
	"fmt"
	"image"
	"image/jpeg"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/millrace/millrace/cmd/millrace/internal/cli"
)

// TestBackupOfAll: a backup of a server with jobs of all contracts, restored to another directory,
// answers as the server did, and its jobs go on.
func TestBackupOfAll(t *testing.T) {
	w := newKeptWorld(t)
	dir, root := filepath.Join(t.TempDir(), "data"), t.TempDir()
	s := w.serve(dir)
	w.fill()
	w.stop(s)
	s = w.serve(dir, "--no-workers")
	want := w.answers()
	backup, restored := filepath.Join(root, "backup"), filepath.Join(root, "restored")
	out, _ := w.command(0, "backup", "--to", backup, "--set", "data_dir="+dir)
	if !strings.HasPrefix(out, backup+": ") {
		t.Errorf("the backup says %s", out)
	}
	w.stop(s)
	w.command(0, "restore", "--from", backup, "--data-dir", restored)
	for _, top := range []string{backup, restored} {
		wantPrivate(t, top)
	}
	s = w.serve(restored, "--no-workers")
	w.compare("restored", want)
	w.stop(s)
	w.serve(restored)
	w.goOn()
}

// wantPrivate wants all below a directory to be accessible for its owner alone.
func wantPrivate(t *testing.T, top string) {
	t.Helper()
	if err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has the mode %s", path, info.Mode())
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// acknowledged are jobs and pictures that a server has acknowledged.
type acknowledged struct {
	mu       sync.Mutex
	jobs     []string
	pictures []imageJob
}

// load submits jobs and pictures until stop is closed.
func (a *acknowledged) load(w *keptWorld, url string, worker int, picture []byte,
	stop <-chan struct{}) {
	for i := 0; ; i++ {
		select {
		case <-stop:
			return
		default:
		}
		id := fmt.Sprintf("%d-%d", worker, i)
		status, answer := sendTo(w.T, http.DefaultClient, "POST", url+"/v2/queues/jobs",
			`[{"queue":"q","id":"`+id+`","timeout":9,"payload":"`+id+`"}]`, "Content-Type",
			"application/json")
		if status != 202 {
			w.Errorf("a job answers %d %s", status, answer)
			return
		}
		a.mu.Lock()
		a.jobs = append(a.jobs, id)
		a.mu.Unlock()
		if i%8 != 0 {
			continue
		}
		var made imageJob
		imageCall(w.T, url, "POST", "/images/v1/files", picture, 202, &made)
		a.mu.Lock()
		a.pictures = append(a.pictures, made)
		a.mu.Unlock()
	}
}

// until waits until so many pictures are acknowledged, and returns what is.
func (a *acknowledged) until(t *testing.T, pictures int) (jobs []string, files []imageJob) {
	t.Helper()
	pollUntil(t.Fatalf, "jobs and pictures to be acknowledged", func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		jobs, files = a.jobs[:len(a.jobs):len(a.jobs)], a.pictures[:len(a.pictures):len(a.pictures)]
		return len(files) >= pictures || t.Failed()
	})
	return jobs, files
}

// TestBackupUnderLoad backs up a server that is given jobs and pictures all the while, kills it,
// and restores the backup. Everything that was acknowledged before the backup began is there, once,
// and is claimed and processed.
func TestBackupUnderLoad(t *testing.T) {
	w := newKeptWorld(t)
	var picture bytes.Buffer
	if err := jpeg.Encode(&picture, image.NewGray(image.Rect(0, 0, 80, 60)), nil); err != nil {
		t.Fatal(err)
	}
	dir, root := filepath.Join(t.TempDir(), "data"), t.TempDir()
	// A picture that is processed at the time of the backup is claimed again when its lock ends.
	settings := []string{"--set", "contracts=relay,images", "--set", "images.lock_timeout=5s"}
	s := w.serve(dir, settings...)
	var acked acknowledged
	stop, all := make(chan struct{}), sync.WaitGroup{}
	for worker := range 4 {
		all.Go(func() { acked.load(w, s.url, worker, picture.Bytes(), stop) })
	}
	jobs, pictures := acked.until(t, 12)
	backup, restored := filepath.Join(root, "backup"), filepath.Join(root, "restored")
	w.command(0, "backup", "--to", backup, "--set", "data_dir="+dir)
	close(stop)
	all.Wait()
	s.kill()
	w.command(0, "restore", "--from", backup, "--data-dir", restored)

	w.serve(restored, settings...)
	claimed := map[string]int{}
	for {
		status, answer := sendTo(t, http.DefaultClient, "GET", w.url+"/v2/queues/q/jobs?num_jobs=1000", "")
		if status == http.StatusNoContent {
			break
		}
		for _, part := range strings.Split(answer, `"id":"`)[1:] {
			id, _, _ := strings.Cut(part, `"`)
			claimed[id]++
		}
	}
	for _, id := range jobs {
		if claimed[id] != 1 {
			t.Errorf("the job %s was acknowledged before the backup, and is claimed %d times", id,
				claimed[id])
		}
	}
	for _, made := range pictures {
		// A message that was in the streams is sent again by the sweep, in two minutes at most.
		w.call("POST", "/images/v1/messages", `{"job_id":"`+made.JobID+`"}`, 202, nil)
	}
	for _, made := range pictures {
		var j imageJob
		pollUntil(func(format string, a ...any) {
			t.Fatalf(format+": %+v", append(a, j)...)
		}, "the picture to be processed", func() bool {
			imageCall(t, w.url, "GET", "/images/v1/jobs/"+made.JobID, nil, 200, &j)
			return j.Status == "completed"
		})
		imageCall(t, w.url, "GET", "/images/v1/files/"+made.FileID+"/content", nil, 200, nil)
	}
	t.Logf("%d jobs and %d pictures before the backup, %d jobs at the end", len(jobs), len(pictures),
		len(acked.jobs))
}

// TestBackupIsRefused: what backup and restore refuse, and that a damaged or unfinished backup
// leaves nothing that a server starts on.
func TestBackupIsRefused(t *testing.T) {
	w := newKeptWorld(t)
	dir, root := filepath.Join(t.TempDir(), "data"), t.TempDir()
	w.stop(w.serve(dir, "--set", "contracts=relay"))
	at := func(name string) string { return filepath.Join(root, name) }
	settings := []string{"--set", "data_dir=" + dir}
	w.command(0, append([]string{"backup", "--to", at("good")}, settings...)...)
	w.command(0, append([]string{"backup", "--to", at("bare"), "--no-secrets"}, settings...)...)
	if _, err := os.Stat(filepath.Join(at("bare"), "operator.token")); err == nil {
		t.Error("a backup without secrets has the token")
	}
	for name, damage := range map[string]func(dir string) error{
		"changed": func(dir string) error {
			text, err := os.ReadFile(filepath.Join(dir, databaseName))
			if err != nil {
				return err
			}
			text[len(text)/2] ^= 1
			return os.WriteFile(filepath.Join(dir, databaseName), text, 0o600)
		},
		"missing":    func(dir string) error { return os.Remove(filepath.Join(dir, databaseName)) },
		"unfinished": func(dir string) error { return os.Remove(filepath.Join(dir, "backup.json")) },
		"shortened":  func(dir string) error { return os.Truncate(filepath.Join(dir, "SHA256SUMS"), 0) },
	} {
		if err := os.CopyFS(at(name), os.DirFS(at("good"))); err != nil {
			t.Fatal(err)
		}
		if err := damage(at(name)); err != nil {
			t.Fatal(err)
		}
		w.command(1, "restore", "--from", at(name), "--data-dir", at(name+"-restored"))
		if _, err := os.Stat(filepath.Join(at(name+"-restored"), databaseName)); err == nil {
			t.Errorf("%s: there is a database", name)
		}
	}
	if _, err := launch(mustMillrace(t), at("changed-restored"), nil); err == nil ||
		!strings.Contains(err.Error(), "has not ended") {
		t.Errorf("a start on half a restore: %v", err)
	}
	w.command(0, "restore", "--from", at("good"), "--data-dir", at("changed-restored"))
	for _, c := range []struct {
		code int
		args []string
		says string
	}{
		{cli.ExitUnable, append([]string{"backup", "--to", at("good")}, settings...), "is not empty"},
		{cli.ExitUnable, []string{"restore", "--from", at("good"), "--data-dir", dir}, "is not empty"},
		{cli.ExitFailed, []string{"backup", "--to", at("none"), "--set", "data_dir=" + at("nowhere")},
			"there is no database"},
		{cli.ExitUsage, []string{"backup", "--to", at("none"), "--set",
			"store=postgres://u:secret@127.0.0.1:1/a"}, "docs/backup.md"},
		{cli.ExitUsage, []string{"backup"}, `"to"`},
	} {
		if _, text := w.command(c.code, c.args...); !strings.Contains(text, c.says) ||
			strings.Contains(text, "secret") {
			t.Errorf("%v says %s, want %q", c.args, text, c.says)
		}
	}
	if _, err := os.Stat(at("none")); err == nil {
		t.Error("a backup that failed leaves a directory")
	}
}
