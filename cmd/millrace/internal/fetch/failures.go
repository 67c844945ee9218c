package fetch

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/cmd/millrace/internal/cli"
	"github.com/millrace/millrace/internal/clock"
)

// Why a download failed is in the job's log, and not in the job: a job has thousands of downloads
// and one last error.

// logTimeout is how long logs may lag behind the states of their jobs. It holds for all jobs
// together, so that a server without logs costs the command no more than that.
const logTimeout = 3 * time.Second

// printFailures writes a line for each download that failed. A log that cannot be read, or that has
// fewer entries than the job has failures, is reported on standard error and is no error: the table
// of jobs, with the outcome, has been written.
func printFailures(ctx context.Context, p cli.Process, box *client.FetchBox, jobs []*followedJob) {
	table := tabwriter.NewWriter(p.Stdout, 0, 0, 2, ' ', 0)
	head := "\nJOB\tFAILED RESOURCE\tURL\tERROR\n"
	until := p.Elapsed() + logTimeout
	for _, j := range jobs {
		if j.Failed == 0 {
			continue
		}
		found, err := j.failures(ctx, box, func() bool { return p.Elapsed() < until })
		for _, e := range found {
			fmt.Fprintf(table, "%s%s\t%s\t%s\t%v: %s\n", head, j.ID, cli.Printable(e.ResourceID),
				cmp.Or(cli.Printable(j.urls[e.ResourceID]), "-"),
				e.Fields["code"], cli.Printable(fmt.Sprint(e.Fields["message"])))
			head = ""
		}
		switch {
		case err != nil:
			fmt.Fprintf(p.Stderr, "%s: its log cannot be read: %v\n", j.title(), err)
		case len(found) < j.Failed:
			fmt.Fprintf(p.Stderr, "%s: its log holds %d of %d failures\n", j.title(), len(found),
				j.Failed)
		}
	}
	_ = table.Flush()
}

// failures returns the log entries that say why downloads of a job failed, one for each resource:
// its last entry counts, because a replay may have ended otherwise. Entries are published behind
// the change of the job that they describe. While some are missing and wait returns true, failures
// reads on every pollInterval, from behind the last entry that it has read.
func (j *followedJob) failures(ctx context.Context, box *client.FetchBox,
	wait func() bool) ([]client.FetchBoxLogEntry, error) {
	last := map[string]client.FetchBoxLogEntry{}
	for log := (client.FetchBoxLogOptions{}); ; {
		for e, err := range box.Logs(ctx, j.ID, log) {
			if err != nil {
				return nil, err
			}
			last[e.ResourceID], log.Since = e, e.Offset+1
		}
		found := lastErrors(last)
		if len(found) >= j.Failed || ctx.Err() != nil || !wait() {
			return found, nil
		}
		clock.Sleep(ctx, pollInterval)
	}
}

// lastErrors returns the entries that are errors, in the order of their resources.
func lastErrors(last map[string]client.FetchBoxLogEntry) (found []client.FetchBoxLogEntry) {
	for _, id := range slices.Sorted(maps.Keys(last)) {
		if id != "" && last[id].Level == "error" { // without a resource it is about the job
			found = append(found, last[id])
		}
	}
	return found
}

// urlsOf returns the URLs of a manifest, by the ids of their resources.
func urlsOf(manifest json.RawMessage) map[string]string {
	var m struct{ Resources []struct{ ID, URL string } }
	_ = json.Unmarshal(manifest, &m) // the server has accepted it: it is well formed
	urls := map[string]string{}
	for _, r := range m.Resources {
		urls[r.ID] = r.URL
	}
	return urls
}
