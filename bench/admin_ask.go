package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"text/tabwriter"
	"time"
)

// answers are how long the answers took to the questions of one label.
type answers struct {
	label string
	goal  goal
	took  []time.Duration
	// by is the time of each path, where the label has several.
	by map[string][]time.Duration
}

// askRounds asks all questions in each of so many rounds, one after another on one connection, and
// ends earlier when the time is over. A disturbance so falls on all of them.
func (w *adminWorld) askRounds(ctx context.Context, all []question, rounds int,
	limit time.Duration) ([]*answers, error) {
	conns, closeAll, err := dialMany(ctx, w.addr(), 1)
	if err != nil {
		return nil, err
	}
	defer closeAll()
	index, lines := map[string]*answers{}, []*answers{}
	cursors, gone := make([]string, len(all)), make([]bool, len(all))
	end := time.Now().Add(limit)
	for round := range rounds {
		for i := range all {
			q := &all[i]
			if q.maxRounds > 0 && (round+i)%max(1, rounds/q.maxRounds) != 0 {
				continue
			}
			if time.Now().After(end) {
				return lines, nil
			}
			if gone[i] {
				continue
			}
			took, err := ask(conns[0], w.getRequest(q.pathFrom(cursors[i])), &cursors[i])
			if gone[i] = errors.Is(err, errGone) && q.goal.isPage(); gone[i] {
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("%s: %w", q.path, err)
			}
			line := index[q.label]
			if line == nil {
				line = &answers{label: q.label, goal: q.goal, by: map[string][]time.Duration{}}
				index[q.label], lines = line, append(lines, line)
			}
			line.took = append(line.took, took)
			line.by[q.path] = append(line.by[q.path], took)
		}
	}
	return lines, nil
}

// pathFrom is the path of a question, with the cursor of the page that is asked for.
func (q *question) pathFrom(cursor string) string {
	if !q.next || cursor == "" {
		return q.path
	}
	u, _ := url.Parse(q.path) // it is made here
	values := u.Query()
	values.Set("cursor", cursor)
	return u.Path + "?" + values.Encode()
}

// ask sends a request, and keeps the cursor of the next page.
func ask(c *rawConn, request []byte, cursor *string) (time.Duration, error) {
	sent := time.Now()
	status, body, err := c.Do(request)
	took := time.Since(sent)
	switch {
	case err != nil:
		return took, err
	case status == http.StatusNotFound:
		return took, errGone
	case status != http.StatusOK:
		return took, fmt.Errorf("status %d: %.300s", status, body)
	}
	*cursor = member(body, "next_cursor")
	return took, nil
}

// isPage reports whether the goal is one of pages of the console.
func (g goal) isPage() bool { return g == pageGoal }

// goals are the times that answers may take. search is how much longer those of the API may that
// look for texts in bodies.
type goals struct{ admin, page, search time.Duration }

// reached reports whether answers are as fast as they should be, and says what they should be.
func (g goals) reached(a *answers) (ok bool, want string) {
	sorted := slices.Sorted(slices.Values(a.took))
	got, name, limit := percentile(sorted, 99), "p99 ", g.admin
	if a.goal.isPage() {
		got, name, limit = percentile(sorted, 95), "p95 ", g.page
	}
	if a.goal == textGoal {
		limit += g.search
	}
	return got <= limit, name + limit.String()
}

// worstPaths is how many paths of one label are named.
const worstPaths = 5

// report writes a line for each label, the slowest first.
func (g goals) report(w io.Writer, lines []*answers) error {
	p99 := func(a *answers) time.Duration {
		return percentile(slices.Sorted(slices.Values(a.took)), 99)
	}
	slices.SortFunc(lines, func(a, b *answers) int { return cmp.Compare(p99(b), p99(a)) })
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "GET\tanswers\tp50\tp95\tp99\tmax\tgoal\t")
	over := 0
	for _, a := range lines {
		sorted := slices.Sorted(slices.Values(a.took))
		ok, want := g.reached(a)
		note := ""
		if !ok {
			note, over = "OVER", over+1
		}
		fmt.Fprintf(t, "%s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\n", a.label, len(sorted),
			shortTime(percentile(sorted, 50)), shortTime(percentile(sorted, 95)),
			shortTime(percentile(sorted, 99)), shortTime(percentile(sorted, 100)), want, note)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, a := range lines {
		if len(a.by) > 1 {
			fmt.Fprintf(w, "slowest of %q by their median: %s\n", a.label, slowest(a.by))
		}
	}
	for _, kind := range []goal{adminGoal, pageGoal} {
		g.reportAll(w, kind, lines)
	}
	_, err := fmt.Fprintf(w, "%d of %d lines are over their goal\n", over, len(lines))
	return err
}

// reportAll writes a line about all answers with one goal, whatever they are about: a line of a few
// dozen answers has its slowest one as its 99th percentile.
func (g goals) reportAll(w io.Writer, kind goal, lines []*answers) {
	all := &answers{goal: kind}
	for _, a := range lines {
		if a.goal == kind {
			all.took = append(all.took, a.took...)
		}
	}
	if len(all.took) == 0 {
		return
	}
	sorted := slices.Sorted(slices.Values(all.took))
	name := "the API"
	if kind.isPage() {
		name = "the console"
	}
	_, want := g.reached(all)
	fmt.Fprintf(w, "all %d answers of %s: p50 %s p95 %s p99 %s max %s, goal %s\n", len(sorted), name,
		shortTime(percentile(sorted, 50)), shortTime(percentile(sorted, 95)),
		shortTime(percentile(sorted, 99)), shortTime(percentile(sorted, 100)), want)
}

// slowest names the paths with the longest medians.
func slowest(by map[string][]time.Duration) (text string) {
	type path struct {
		text string
		took time.Duration
	}
	var all []path
	for p, took := range by {
		all = append(all, path{p, percentilesOf(took).P50})
	}
	slices.SortFunc(all, func(a, b path) int {
		return cmp.Or(cmp.Compare(b.took, a.took), cmp.Compare(a.text, b.text))
	})
	for i, p := range all[:min(worstPaths, len(all))] {
		if i > 0 {
			text += ", "
		}
		text += p.text + " " + shortTime(p.took)
	}
	return text
}
