package main

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// final has all jobs at the end of a run, read by API and by SQL.
type final struct {
	Jobs   map[string]finalJob   // by id, as the API shows them
	Rows   []row                 // of the tables
	Dead   map[string]deadLetter // of Relay, by id of the job
	Counts map[string]counts     // of the queues, as the server keeps them
	Faults []string              // what the databases say about themselves

	Forge      map[string]forgeJob     // of ForgeRun, by id, as the API shows them to their clients
	Events     map[string][]forgeEvent // of these jobs, by the table
	Deliveries map[string][]delivery   // that the sink of a client got, by the client

	Fetch  map[string]fetchJob  // of FetchBox, by id
	Files  map[string]imageFile // of Images, by id
	Canary []string             // requests to where none may go
	Wiped  int64                // when the list of dead letters of FetchBox was lost; 0 is never

	Schedule finalSchedule

	Callers   []callerFault   // rows that must not be
	Committed map[string]bool // jobs and runs of transactions of callers
}

// finalJob is a job as the API shows it.
type finalJob struct {
	Queue, Name, Status, Result, Payload string
	Deps                                 []string
	Failures                             int // attempts that count as failed
}

// deadLetter is a job of Relay that was given up.
type deadLetter struct{ Attempts int }

// row is a job in the tables: once in jobs, and once in the table of its phase.
type row struct{ Contract, Queue, Job, Phase, State string }

// counts are the numbers of jobs of a queue by phase, as the server keeps or SQL finds them.
type counts struct{ Ready, Leased int }

// readAPI reads what the API shows of all jobs that requests may have made.
func (r *run) readAPI(ctx context.Context, ops []*op) (*final, error) {
	f := &final{Jobs: map[string]finalJob{}, Dead: map[string]deadLetter{}}
	for _, queue := range []string{relayQueues[0], relayQueues[1], orderedQueue, parkedQueue} {
		if err := r.readDead(ctx, f, queue); err != nil {
			return nil, err
		}
	}
	for _, queue := range []string{taskflowQueues[0], taskflowQueues[1], orderedFlow, parkedFlow} {
		if err := r.readFlows(ctx, f, queue); err != nil {
			return nil, err
		}
	}
	if err := r.readForge(ctx, f); err != nil {
		return nil, err
	}
	if r.plan.hasObjects() {
		if err := errors.Join(r.readFetch(ctx, f), r.readImages(ctx, f, ops)); err != nil {
			return nil, err
		}
	}
	if err := r.readSchedule(ctx, f); err != nil {
		return nil, err
	}
	f.Canary = r.origin.canary.reached()
	return f, r.readRelayJobs(ctx, f, ops)
}

// refusedError is an answer to a read that must be answered.
type refusedError struct {
	path   string
	status int
}

func (e *refusedError) Error() string { return fmt.Sprintf("GET %s: status %d", e.path, e.status) }

// get reads a page of the API, with an API key if there is one. Anything but 200 and 404 is an
// error.
func (r *run) get(ctx context.Context, path string, into any, key ...string) (found bool,
	err error) {
	status, body, err := r.getRaw(ctx, path, key...)
	switch {
	case err != nil || status == http.StatusNotFound:
		return false, err
	case status != http.StatusOK:
		return false, &refusedError{path, status}
	}
	return true, json.Unmarshal(body, into)
}

// getRaw makes a read of the API, with an API key if there is one.
func (r *run) getRaw(ctx context.Context, path string, key ...string) (status int, body []byte,
	err error) {
	return r.exchangeRaw(ctx, http.MethodGet, r.nodes[0], path, nil, key...)
}

// exchangeRaw makes a request that is not in the ledger, with an API key if there is one.
func (r *run) exchangeRaw(ctx context.Context, method string, n *node, path string, text []byte,
	key ...string) (status int, body []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, method, n.url+path, bytes.NewReader(text))
	if err != nil {
		return 0, nil, err
	}
	if len(text) > 0 {
		req.Header.Set("Content-Type", "application/json")
	}
	if len(key) > 0 {
		req.Header.Set("Authorization", "Bearer "+key[0])
	}
	resp, err := r.client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(resp.Body)
	return resp.StatusCode, body, err
}

// pages reads all pages of a list.
func pages[T any](ctx context.Context, r *run, path string, add func(T), key ...string) error {
	for cursor := ""; ; {
		var page struct {
			Items []T
			Next  *string `json:"next_cursor"`
		}
		if _, err := r.get(ctx, path+cursor, &page, key...); err != nil {
			return err
		}
		for _, item := range page.Items {
			add(item)
		}
		if page.Next == nil || *page.Next == "" {
			return nil
		}
		cursor = "&cursor=" + url.QueryEscape(*page.Next)
	}
}

// sampleOf is one of how many jobs of batches is asked for although no table has it.
const sampleOf = 10

// readRelayJobs asks for every job that a request may have made: Relay has no list of jobs. Where
// there were batches these are too many, so of those that no table has a sample is asked for. The
// others count as gone, which only the answers of the workers can explain.
func (r *run) readRelayJobs(ctx context.Context, f *final, ops []*op) error {
	stored, err := r.storedJobs(ctx)
	if err != nil {
		return err
	}
	queues := map[string]string{}
	for _, o := range ops {
		if o.Contract != relay {
			continue
		}
		for i, m := range o.Made {
			if r.plan.Batch == 0 || stored[m.Job] || (int(o.ID)+i)%sampleOf == 0 {
				queues[m.Job] = m.Queue
			}
		}
	}
	return inParallel(queues, func(id, queue string, add func(func())) error {
		var j relayJob
		found, err := r.get(ctx, "/v2/queues/"+queue+"/jobs/"+id, &j)
		if found {
			add(func() {
				f.Jobs[id] = finalJob{Queue: queue, Status: "present", Payload: string(j.Payload)}
			})
		}
		return err
	})
}

// storedJobs returns the ids of the jobs of Relay that are in the tables.
func (r *run) storedJobs(ctx context.Context) (map[string]bool, error) {
	db, err := r.openSQL()
	if err != nil {
		return nil, err
	}
	defer db.Close()
	rows, err := db.QueryContext(ctx, "SELECT key FROM jobs WHERE contract='"+relay+"'")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	stored := map[string]bool{}
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		stored[id] = true
	}
	return stored, rows.Err()
}

// inParallel calls a function for each job, eight at a time. What a call passes to add runs alone.
func inParallel(jobs map[string]string, fn func(id, queue string, add func(func())) error) error {
	var mu sync.Mutex
	var first error
	add := func(change func()) {
		mu.Lock()
		defer mu.Unlock()
		change()
	}
	work := make(chan string)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for id := range work {
				if err := fn(id, jobs[id], add); err != nil {
					add(func() { first = err })
				}
			}
		})
	}
	for id := range jobs {
		work <- id
	}
	close(work)
	all.Wait()
	return first
}

// readDead reads the dead letters of a queue of Relay.
func (r *run) readDead(ctx context.Context, f *final, queue string) error {
	type listed struct {
		JobID    string `json:"job_id"`
		Attempts int    `json:"attempts"`
	}
	return pages(ctx, r, "/v2/queues/"+queue+"/dead-letters?limit=100", func(l listed) {
		f.Dead[l.JobID] = deadLetter{l.Attempts}
	})
}

// readFlows reads the jobs of a queue of TaskFlow, and each of them once more alone, as only that
// answer has its result.
func (r *run) readFlows(ctx context.Context, f *final, queue string) error {
	type shown struct {
		ID, Name, Queue, Status string
		Payload, Result         json.RawMessage
		Dependencies            []string
		Failures                int `json:"attempt_count"`
	}
	found := map[string]string{}
	if err := pages(ctx, r, "/api/v1/jobs?limit=100&queue="+queue, func(j shown) {
		found[j.ID] = queue
	}); err != nil {
		return err
	}
	return inParallel(found, func(id, queue string, add func(func())) error {
		var j shown
		there, err := r.get(ctx, "/api/v1/jobs/"+id, &j)
		if there {
			add(func() {
				f.Jobs[id] = finalJob{queue, j.Name, j.Status, string(j.Result), string(j.Payload),
					j.Dependencies, j.Failures}
			})
		}
		return err
	})
}

// openSQL opens the database of the servers beside them.
func (r *run) openSQL() (*sql.DB, error) {
	if r.database != nil {
		return sql.Open("pgx", r.database.through(r.database.url.Host))
	}
	file := url.URL{Scheme: "file", Path: filepath.Join(r.plan.Dir, "node0", "millrace.db"),
		RawQuery: "_pragma=busy_timeout(5000)&_pragma=query_only(1)"}
	return sql.Open("sqlite", file.String())
}

// phaseTables are the tables of states.
var phaseTables = []string{"waiting", "ready", "leases", "finished"}

// states is a query for the rows of all tables of states.
func states() string {
	parts := slices.Clone(phaseTables)
	for i, table := range parts {
		parts[i] = "SELECT seq, state, '" + table + "' AS phase FROM " + table
	}
	return strings.Join(parts, " UNION ALL ")
}

// readSQL reads the tables.
func readSQL(ctx context.Context, db *sql.DB, f *final, isSQLite bool) error {
	rows, err := db.QueryContext(ctx, `SELECT j.contract, j.queue, j.key, coalesce(s.phase, ''),
		coalesce(s.state, '') FROM jobs j LEFT JOIN (`+states()+`) s ON s.seq=j.seq`)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var j row
		if err := rows.Scan(&j.Contract, &j.Queue, &j.Job, &j.Phase, &j.State); err != nil {
			return err
		}
		f.Rows = append(f.Rows, j)
	}
	if err := rows.Err(); err != nil {
		return err
	}
	if err := errors.Join(readCounts(ctx, db, f), readEvents(ctx, db, f)); err != nil {
		return err
	}
	orphans := 0
	if err := db.QueryRowContext(ctx, "SELECT count(*) FROM ("+states()+`) s
		WHERE s.seq NOT IN (SELECT seq FROM jobs)`).Scan(&orphans); err != nil {
		return err
	}
	if orphans > 0 {
		f.Faults = append(f.Faults, fmt.Sprintf("%d states are of no job", orphans))
	}
	if isSQLite {
		return checkIntegrity(ctx, db, f)
	}
	return nil
}

// readCounts reads the counters of queues, which the server keeps in slots.
func readCounts(ctx context.Context, db *sql.DB, f *final) error {
	rows, err := db.QueryContext(ctx, `SELECT contract, queue, CAST(sum(ready) AS BIGINT),
		CAST(sum(leased) AS BIGINT) FROM counts GROUP BY contract, queue`)
	if err != nil {
		return err
	}
	defer rows.Close()
	f.Counts = map[string]counts{}
	for rows.Next() {
		var contract, queue string
		var c counts
		if err := rows.Scan(&contract, &queue, &c.Ready, &c.Leased); err != nil {
			return err
		}
		f.Counts[contract+"/"+queue] = c
	}
	return rows.Err()
}

// checkIntegrity has SQLite check its file.
func checkIntegrity(ctx context.Context, db *sql.DB, f *final) error {
	var answer string
	if err := db.QueryRowContext(ctx, "PRAGMA integrity_check").Scan(&answer); err != nil {
		return err
	}
	if answer != "ok" {
		f.Faults = append(f.Faults, "integrity_check: "+answer)
	}
	return nil
}

// countUnfinished counts the jobs that workers have yet to finish. A schedule's is never done.
func countUnfinished(ctx context.Context, db *sql.DB) (n int, err error) {
	err = db.QueryRowContext(ctx, `SELECT count(*) FROM jobs j WHERE j.queue NOT IN ('`+
		parkedQueue+`', '`+parkedFlow+`', '`+scheduledQueue+`')
		AND j.contract<>'schedule' AND j.seq NOT IN (SELECT seq FROM finished)`).Scan(&n)
	return n, err
}
