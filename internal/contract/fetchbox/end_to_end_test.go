package fetchbox_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/maintenance"
	"github.com/millrace/millrace/internal/stream"
	"github.com/millrace/millrace/internal/testkit"
)

var errSeen = errors.New("seen")

// TestWhole runs everything a node runs, and watches it by the stream of statuses as somebody else
// would.
func TestWhole(t *testing.T) {
	testkit.OnEveryStore(t, func(t *testing.T, p testkit.Database) {
		w := newFetchWorldOn(t, p, assertNear())
		var called atomic.Int64
		site := origin(t, func(rw http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodGet || r.URL.Path == "/callback" {
				called.Add(1)
			}
			if r.URL.Path == "/3" {
				rw.WriteHeader(http.StatusForbidden)
			}
			_, _ = io.WriteString(rw, "body of "+r.URL.Path)
		})
		ctx, stop := context.WithCancel(context.Background())
		var all sync.WaitGroup
		all.Go(func() { w.fetchbox.Run(ctx) })
		all.Go(func() {
			(&maintenance.Runner{Engine: w.engine, Log: slog.New(slog.DiscardHandler),
				PruneInterval: time.Hour,
				Publishers:    []maintenance.Publisher{{Deliver: w.fetchbox.Deliver}}}).Run(ctx)
		})
		t.Cleanup(func() { stop(); all.Wait() })
		ended := func(t *testing.T, id string) (status string) {
			t.Helper()
			err := w.streams.Follow(t.Context(), "JOBS_STATUS", "jobs.status", 0,
				func(e stream.Entry) error {
					var m struct {
						JobID  string `json:"job_id"`
						Status string
					}
					if err := json.Unmarshal(e.Data, &m); err != nil {
						return err
					}
					if status = m.Status; m.JobID == id &&
						(status == "completed" || status == "failed") {
						return errSeen
					}
					return nil
				})
			if !errors.Is(err, errSeen) {
				t.Fatal(err)
			}
			return status
		}
		t.Run("FB-031 FB-055 FB-082 from manifest to objects", func(t *testing.T) {
			r := w.submitTo(t, "default", resourcesOf(site.URL, 3))
			assertEqual(t, "status", ended(t, r.JobID), "completed")
			assertEqual(t, "completed", w.status(t, r.JobID, "completed").Completed, 3)
			assertEqual(t, "object", string(w.object(t,
				"s3://millrace/resources/default/"+r.JobID+"/r1")), "body of /1")
		})
		t.Run("FB-036 no request is sent", func(t *testing.T) {
			body := strings.Replace(resourcesOf(site.URL, 2), `"metadata"`,
				`"callback_url":"`+site.URL+`/callback","attributes":{"callback_url":"`+site.URL+
					`/callback"},"metadata"`, 1)
			r := w.submitTo(t, "default", body)
			assertEqual(t, "status", ended(t, r.JobID), "completed")
			assertEqual(t, "requests", called.Load(), 0)
		})
		t.Run("FB-037 FB-055 FB-084 one that fails", func(t *testing.T) {
			r := w.submitTo(t, "default", resourcesOf(site.URL, 5))
			assertEqual(t, "status", ended(t, r.JobID), "failed")
			v := w.status(t, r.JobID, "failed")
			if v.Completed != 4 || v.Failed != 1 || v.LastError.Code != "HTTP_403" {
				t.Errorf("got %+v", v)
			}
			assertEqual(t, "dead letters counted", w.counter(t, "worker_dlq_total"), 1)
			err := w.streams.Follow(t.Context(), "JOBS_DLQ", "jobs.dlq", 0,
				func(e stream.Entry) error {
					var l deadLetter
					if err := json.Unmarshal(e.Data, &l); err != nil {
						return err
					}
					assertEqual(t, "dead letter",
						fmt.Sprint(l.Code, " ", l.Attempts, " ",
							strings.Contains(string(l.Task), r.JobID)), "HTTP_403 1 true")
					return errSeen
				})
			if !errors.Is(err, errSeen) {
				t.Error(err)
			}
		})
		t.Run("FB-095 FB-099 a direct task behind one that is none", func(t *testing.T) {
			conn := w.producer(t)
			task := `{"job_id":"` + foreignTask +
				`","job_type":"default","resource_id":"a","url":"` + site.URL + `/9"}`
			publish(t, conn, "{", task)
			assertEqual(t, "status", ended(t, foreignTask), "completed")
			assertEqual(t, "object", string(w.object(t,
				"s3://millrace/resources/default/"+foreignTask+"/a")), "body of /9")
		})
		t.Run("FB-081 a direct task of another scheme", func(t *testing.T) {
			conn := w.producer(t)
			const id = "0192f3a0-1111-7222-8333-444455559999"
			publish(t, conn, `{"job_id":"`+id+
				`","job_type":"default","resource_id":"a","url":"file:///etc/passwd"}`)
			assertEqual(t, "status", ended(t, id), "failed")
			assertEqual(t, "last error", w.get(t, id).LastError.Code, "DOWNLOAD_INVALID_URL")
		})
	})
}
