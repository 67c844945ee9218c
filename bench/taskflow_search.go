package main

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/millrace/millrace/internal/contract/taskflow"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/store/postgres"
	"github.com/millrace/millrace/internal/store/sqlite"
)

// flowAge is over how much time the jobs of a search are spread. A fifth of them came in graphs,
// whose jobs have one time each.
const flowAge = 30 * 24 * time.Hour

// searchGraphInterval is of how many jobs the last flowGraphJobs are one graph.
const searchGraphInterval = 5 * flowGraphJobs

// fillFlow stores n jobs as a busy year leaves them: most are completed and of the usual priority,
// one queue has nearly half of them and another hardly any.
func (f *flowRunner) fillFlow(ctx context.Context, n int, now time.Time) error {
	s, err := f.open(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	random := rand.New(rand.NewPCG(4, 1))
	for _, cut := range batches(n, 5000) {
		jobs := make([]*job.Job, 0, 5000)
		for i := cut[0]; i < cut[1]; i++ {
			jobs = append(jobs, flowJob(random, i, n, now))
		}
		if err := s.Update(ctx, func(tx store.Tx) error {
			return tx.Apply(store.Changes{Insert: jobs})
		}); err != nil {
			return err
		}
	}
	return nil
}

// open opens the store the server will have.
func (f *flowRunner) open(ctx context.Context) (store.Store, error) {
	if f.pg != nil {
		return postgres.Open(ctx, postgres.Config{URL: f.pg.DSN()})
	}
	return sqlite.Open(ctx, sqlite.Config{Path: filepath.Join(f.dir, "data", "millrace.db"),
		Now: time.Now})
}

// flowTime is when job i of n was created. The last flowGraphJobs of every searchGraphInterval jobs
// are one graph.
func flowTime(i, n int, now time.Time) time.Time {
	if at := i % searchGraphInterval; at > searchGraphInterval-flowGraphJobs {
		i -= at - (searchGraphInterval - flowGraphJobs)
	}
	return now.Add(-flowAge +
		time.Duration(float64(flowAge)*float64(i)/float64(n)).Truncate(time.Microsecond))
}

// randomUUID makes an id, as bytes and as text.
func randomUUID(random *rand.Rand) (raw [16]byte, text string) {
	for k := range raw {
		raw[k] = byte(random.Uint32())
	}
	return raw, fmt.Sprintf("%x-%x-%x-%x-%x", raw[:4], raw[4:6], raw[6:8], raw[8:10], raw[10:])
}

func flowJob(random *rand.Rand, i, n int, now time.Time) *job.Job {
	raw, key := randomUUID(random)
	j := &job.Job{ID: job.ID{JobType: taskflow.Name, Key: key},
		Retry: flowRetry, Searchable: true, MaxAttempts: 3,
		Lease: time.Minute, CreatedAt: flowTime(i, n, now), Priority: 5,
		Queue:      "q" + strconv.Itoa(random.IntN(20)),
		Definition: fmt.Appendf(nil, `{"name":"job %d","dependencies":[]}`, i),
		Payload:    appendPayload(nil, i)}
	j.OrderTime, j.DueAt, j.UpdatedAt = j.CreatedAt, j.CreatedAt, now
	switch pick := random.IntN(100); {
	case i%(n/20+1) == 7:
		j.Queue = "rare"
	case pick < 45:
		j.Queue = "main"
	}
	if random.IntN(2) == 0 {
		j.Priority = 1 + random.IntN(10)
	}
	switch pick := random.IntN(1000); {
	case pick < 850:
		j.State, j.Phase, j.FinishedAt = taskflow.Completed, job.Done, now
	case pick < 900:
		j.State, j.Phase, j.FinishedAt = taskflow.Failed, job.Done, now
	case pick < 930:
		j.State, j.Phase, j.FinishedAt = taskflow.Blocked, job.Done, now
	case pick < 970:
		j.State, j.Phase, j.OpenDeps = taskflow.Pending, job.Waiting, 1
	case pick < 999:
		j.State, j.Phase = taskflow.Ready, job.Ready
	default:
		j.State, j.Phase, j.LeaseUntil = taskflow.Running, job.Leased, now.Add(24*time.Hour)
		j.Run = job.RunID(raw)
	}
	return j
}

// flowFilters are all combinations of filters, page sizes and places to go on from, as the query of
// a search.
func flowFilters(n int, now time.Time) []string {
	ago := func(d time.Duration) string {
		return url.QueryEscape(now.Add(-d).UTC().Format(time.RFC3339Nano))
	}
	graphTime := flowTime(n/2/searchGraphInterval*searchGraphInterval+searchGraphInterval-1, n,
		now).UTC()
	cursor := func(at time.Time, id string) string {
		return "cursor=" + url.QueryEscape(cursorOf(at, id))
	}
	choices := [][]string{
		{"", "queue=main", "queue=q7", "queue=rare", "queue=none"},
		{"", "status=PENDING", "status=READY", "status=RUNNING", "status=COMPLETED",
			"status=FAILED", "status=BLOCKED"},
		{"", "priority_min=6", "priority_max=4", "priority_min=3&priority_max=7",
			"priority_min=5&priority_max=5"},
		{"", "created_after=" + ago(flowAge/10), "created_before=" + ago(flowAge/2),
			"created_after=" + ago(flowAge/2) + "&created_before=" + ago(flowAge/2-time.Hour),
			"created_after=" + url.QueryEscape(graphTime.Format(time.RFC3339Nano)) +
				"&created_before=" +
				url.QueryEscape(graphTime.Add(time.Microsecond).Format(time.RFC3339Nano))},
		{"", cursor(graphTime, "80000000-0000-4000-8000-000000000000"),
			cursor(now.Add(-flowAge*9/10), "80000000-0000-4000-8000-000000000000")},
		{"limit=20", "limit=100"},
	}
	queries := []string{""}
	for _, choice := range choices {
		var longer []string
		for _, q := range queries {
			for _, c := range choice {
				if q != "" && c != "" {
					c = "&" + c
				}
				longer = append(longer, q+c)
			}
		}
		queries = longer
	}
	return queries
}

// cursorOf is the cursor of a page that ended with a job (TF-100).
func cursorOf(at time.Time, id string) string {
	return base64.StdEncoding.EncodeToString([]byte(at.UTC().Format(time.RFC3339Nano) + "|" + id))
}

// flowSearches is how often each combination is asked for.
const flowSearches = 5

// flowSearch asks for a page with every combination of filters, one after another.
func flowSearch(ctx context.Context, s *flowServer, _, n int) ([]Phase, error) {
	open, closeAll, err := dialMany(ctx, s.addr, 1)
	if err != nil {
		return nil, err
	}
	defer closeAll()
	queries := flowFilters(n, s.filledAt)
	took := make([][]time.Duration, len(queries))
	started := time.Now()
	for range flowSearches {
		for i, q := range queries {
			sent := time.Now()
			if _, err := open[0].Expect(s.request("/api/v1/jobs?"+q, nil),
				http.StatusOK); err != nil {
				return nil, fmt.Errorf("%s: %w", q, err)
			}
			took[i] = append(took[i], time.Since(sent))
		}
	}
	every := Phase{Name: "search", Jobs: len(queries) * flowSearches, Took: time.Since(started)}
	medians := Phase{Name: "median of each combination", Jobs: len(queries), Took: every.Took}
	bests := Phase{Name: "best of each combination", Jobs: len(queries), Took: every.Took}
	for i := range took {
		every.Latency = append(every.Latency, took[i]...)
		slices.Sort(took[i])
		medians.Latency = append(medians.Latency, took[i][flowSearches/2])
		bests.Latency = append(bests.Latency, took[i][0])
	}
	worst := make([]int, len(queries))
	for i := range worst {
		worst[i] = i
	}
	slices.SortFunc(worst, func(a, b int) int {
		return cmp.Compare(medians.Latency[b], medians.Latency[a])
	})
	for _, i := range worst[:3] {
		s.note += fmt.Sprintf("; %v for %s", medians.Latency[i].Round(10*time.Microsecond),
			queries[i])
	}
	return []Phase{every, medians, bests}, nil
}
