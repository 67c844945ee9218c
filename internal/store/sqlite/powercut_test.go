//go:build linux

package sqlite_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/store/sqlite"
)

func init() { children["cut"] = childCut }

// Each of the cut writers counts up one record, which is larger than a page.
const (
	cutWriters  = 8
	cutBodySize = 6000
)

// TestPowerCuts has a process write into a database on a file system of its own, and takes copies
// of the device below while the process is stopped: what was written and not synced is missing
// there, as after a loss of power. Every copy must open, be whole and have all that was
// acknowledged. MILLRACE_POWER_CUTS sets how many copies are taken.
func TestPowerCuts(t *testing.T) {
	cuts := 20
	if text := os.Getenv("MILLRACE_POWER_CUTS"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		cuts = n
	}
	dir := t.TempDir()
	image, disk := filepath.Join(dir, "disk"), filepath.Join(dir, "mounted")
	for _, step := range []func() error{
		func() error { return os.Mkdir(disk, 0o700) },
		func() error { return run("truncate", "-s", "64M", image) },
		func() error { return run("mkfs.ext4", "-q", "-F", image) },
		func() error { return run("mount", "-o", "loop", image, disk) },
	} {
		if err := step(); err != nil {
			missing(t, err)
		}
	}
	t.Cleanup(func() { run("umount", disk) })
	ledger := filepath.Join(dir, "ledger")
	writer := child("cut", filepath.Join(disk, "millrace.db"))
	writer.Env = append(writer.Env, "MILLRACE_TEST_LEDGER="+ledger)
	var output bytes.Buffer
	writer.Stdout, writer.Stderr = &output, &output
	if err := writer.Start(); err != nil {
		t.Fatal(err)
	}
	stop := func() { writer.Process.Kill(); writer.Wait() }
	defer stop()
	lines := 0
	for cut := range cuts {
		before := lines
		for deadline := time.Now().Add(time.Minute); lines <= before; {
			if time.Now().After(deadline) {
				stop()
				t.Fatalf("cut %d: the writer has stopped: %s", cut, &output)
			}
			time.Sleep(rand.N(20 * time.Millisecond)) // a cut may come at any time
			acked, err := readLedger(ledger)
			if err != nil {
				t.Fatal(err)
			}
			lines = acked.lines
		}
		if err := cutPower(writer.Process, image, ledger, dir); err != nil {
			t.Fatalf("cut %d: %v", cut, err)
		}
	}
	t.Logf("%d cuts during %d acknowledgements", cuts, lines)
}

// cutPower copies the device of a stopped process and examines the database on the copy.
func cutPower(writer *os.Process, image, ledger, dir string) error {
	copied, mounted := filepath.Join(dir, "cut"), filepath.Join(dir, "cut-mounted")
	if err := freeze(writer); err != nil {
		return err
	}
	acked, err := readLedger(ledger)
	err = errors.Join(err, run("cp", "--sparse=always", image, copied),
		writer.Signal(syscall.SIGCONT), os.MkdirAll(mounted, 0o700))
	if err != nil {
		return err
	}
	if err := run("mount", "-o", "loop", copied, mounted); err != nil {
		return err
	}
	return errors.Join(acked.compare(filepath.Join(mounted, "millrace.db")), run("umount", mounted))
}

// freeze stops a process and waits until all of its threads have stopped.
func freeze(p *os.Process) error {
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	for {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.Pid))
		if err != nil {
			return err
		}
		_, after, _ := strings.Cut(string(stat), ") ")
		if strings.HasPrefix(after, "T") {
			return nil
		}
		time.Sleep(time.Millisecond)
	}
}

// acknowledged holds the highest acknowledged count of each writer.
type acknowledged struct {
	counts map[string]uint64
	lines  int
}

func readLedger(path string) (acknowledged, error) {
	a := acknowledged{counts: map[string]uint64{}}
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return a, nil
	}
	if err != nil {
		return a, err
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); a.lines++ {
		var name string
		var count uint64
		if _, err := fmt.Sscan(lines.Text(), &name, &count); err != nil {
			return a, err
		}
		a.counts[name] = max(a.counts[name], count)
	}
	return a, nil
}

// compare opens a database after a cut. It must be whole, and no count lower than acknowledged.
func (a acknowledged) compare(path string) error {
	s, err := sqlite.Open(context.Background(), sqlite.Config{Path: path, Now: time.Now})
	if err != nil {
		return err
	}
	counts := map[string]uint64{}
	err = s.View(context.Background(), func(r store.Reader) error {
		records, err := r.Records(store.RecordSelector{Kind: "cut", Limit: cutWriters})
		for _, rec := range records {
			counts[rec.Key] = binary.BigEndian.Uint64(rec.Body)
		}
		return err
	})
	for name, want := range a.counts {
		if counts[name] < want {
			err = errors.Join(err, fmt.Errorf("%s has %d, acknowledged %d", name, counts[name], want))
		}
	}
	return errors.Join(err, s.Close(), integrity(path))
}

// childCut writes until it is killed. The log is short, so that it is written into the database
// file and begun again many times.
func childCut(path string) error {
	ledger, err := os.OpenFile(os.Getenv("MILLRACE_TEST_LEDGER"),
		os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	s, err := sqlite.Open(context.Background(), sqlite.WithPragmas(
		sqlite.Config{Path: path, Now: time.Now}, "wal_autocheckpoint(50)"))
	if err != nil {
		return err
	}
	failed := make(chan error)
	for w := range cutWriters {
		go func() {
			name, body := fmt.Sprint("writer", w), make([]byte, cutBodySize)
			for count := uint64(1); ; count++ {
				binary.BigEndian.PutUint64(body, count)
				err := s.Update(context.Background(), func(tx store.Tx) error {
					return tx.Apply(store.Changes{
						Records: []job.Record{{Kind: "cut", Key: name, Body: body}}})
				})
				if err == nil {
					_, err = fmt.Fprintf(ledger, "%s %d\n", name, count)
				}
				if err != nil {
					failed <- err
				}
			}
		}()
	}
	return <-failed
}
