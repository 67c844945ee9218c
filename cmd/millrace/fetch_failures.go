package main

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

// logTimeout is how long logs may be behind the jobs they tell of.
const logTimeout = 3 * time.Second

// printFailures writes a line for each download that failed. The table of jobs has been written:
// what cannot be told here changes nothing.
func printFailures(ctx context.Context, p cli.Process, box *client.FetchBox, jobs []*fetchedJob) {
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
			fmt.Fprintf(p.Stderr, "%s: its log tells of %d of %d failures\n", j.title(), len(found),
				j.Failed)
		}
	}
	_ = table.Flush()
}

// failures reads from the log of a settled job why downloads failed: what the last entry of a
// resource says, as a replay may have brought another end. A job may be seen to be settled before
// its log is, which is looked at again while wait says so.
func (j *fetchedJob) failures(ctx context.Context, box *client.FetchBox,
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
		clock.Sleep(ctx, fetchPollInterval)
	}
}

// lastErrors are the entries of resources that are errors, by resource.
func lastErrors(last map[string]client.FetchBoxLogEntry) (found []client.FetchBoxLogEntry) {
	for _, id := range slices.Sorted(maps.Keys(last)) {
		if id != "" && last[id].Level == "error" { // the others are about the job
			found = append(found, last[id])
		}
	}
	return found
}

// urlsOf are the URLs of a manifest by resource.
func urlsOf(manifest json.RawMessage) map[string]string {
	var m struct{ Resources []struct{ ID, URL string } }
	_ = json.Unmarshal(manifest, &m) // the server has taken it
	urls := map[string]string{}
	for _, r := range m.Resources {
		urls[r.ID] = r.URL
	}
	return urls
}
