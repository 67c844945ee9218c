package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/internal/setting"
)

// Commands take the number of a job or an id. A number is tried first, since it costs one request.
// An id is searched for in all contracts, and then in the contract, or contract and queue, that its
// first parts may name. An id of several jobs is an error that lists them.

// JobNames describes how a job may be named, for the help of commands that take one.
const JobNames = `A job is named by its number, or by the id that its contract gives it: alone
where no other job has it, else as contract/id, or contract/queue/id for Relay.`

// OneJob checks that the arguments name one job.
func OneJob(_ *cobra.Command, args []string) error {
	if len(args) != 1 || args[0] == "" {
		return errors.New("one job is required, by its number such as 1204, or its id")
	}
	return nil
}

// OfJob calls get with the number of the job that an argument names. A number goes before an id.
func OfJob[T any](ctx context.Context, server *client.Admin, argument string,
	get func(number int64) (T, error)) (T, error) {
	number, err := ParseNumber(argument)
	if err != nil {
		return ofJobByID(ctx, server, argument, get)
	}
	got, err := get(number)
	if !errors.Is(err, client.ErrNotFound) {
		return got, err
	}
	number, findErr := findJob(ctx, server, argument)
	if findErr != nil { // it is no id either, and was most probably meant as a number
		return got, err
	}
	return get(number)
}

// ofJobByID calls get with the number of the job that has an id.
func ofJobByID[T any](ctx context.Context, server *client.Admin, id string,
	get func(number int64) (T, error)) (got T, err error) {
	number, err := findJob(ctx, server, id)
	if err != nil {
		return got, err
	}
	return get(number)
}

// maxCandidates bounds the jobs that the error of an ambiguous id lists.
const maxCandidates = 10

// findJob returns the number of the one job that has an id.
func findJob(ctx context.Context, server *client.Admin, argument string) (int64, error) {
	filters, err := filtersOf(ctx, server, argument)
	if err != nil {
		return 0, err
	}
	var found []client.AdminJob
	for _, f := range filters {
		for j, err := range server.Jobs(ctx, client.AdminJobQuery{Filter: f,
			PageSize: maxCandidates + 1}) {
			if err != nil {
				return 0, err
			}
			if !slices.ContainsFunc(found, func(o client.AdminJob) bool {
				return o.Number == j.Number
			}) {
				found = append(found, j)
			}
			if len(found) > maxCandidates {
				break
			}
		}
	}
	switch len(found) {
	case 0:
		return findGone(ctx, server, argument, filters)
	case 1:
		return found[0].Number, nil
	}
	return 0, ambiguousJob(argument, found)
}

// findGone returns the number of the one job that was deleted when it was given up, as those of
// Relay are, by its dead letter: of several with one id the newest that was not replayed. Without
// one it looks for the beginning of an id.
func findGone(ctx context.Context, server *client.Admin, argument string,
	filters []client.AdminFilter) (int64, error) {
	newest := map[string]client.AdminDeadLetter{} // by queue
	for _, f := range filters {
		for l, err := range server.DeadLetters(ctx, client.AdminDeadLetterFilter{
			Contract: f.Contract, Queue: f.Queue, JobID: f.ID, PageSize: maxPage}) {
			if errors.Is(err, client.ErrInvalid) { // an older server does not have this filter
				break
			}
			if err != nil {
				return 0, err
			}
			queue := QueueName(l.Contract, l.Queue)
			if had, known := newest[queue]; !known || l.ReplayedAt == nil || had.ReplayedAt != nil {
				newest[queue] = l
			}
		}
	}
	var found []client.AdminJob
	for _, queue := range slices.Sorted(maps.Keys(newest)) {
		l := newest[queue]
		found = append(found, client.AdminJob{Number: l.Number, Contract: l.Contract,
			Queue: l.Queue, ID: l.JobID, State: fmt.Sprintf("dead letter %d", l.ID)})
	}
	switch len(found) {
	case 0:
		return findByBegin(ctx, server, argument)
	case 1:
		return found[0].Number, nil
	}
	return 0, ambiguousJob(argument, found)
}

// The start of an id is enough where it has some characters and the job is not old.
const (
	minBegin  = 6
	maxNewest = 500
)

// findByBegin returns the number of the one job among the newest whose id begins with an argument.
func findByBegin(ctx context.Context, server *client.Admin, argument string) (int64, error) {
	var found []client.AdminJob
	seen := 0
	for j, err := range server.Jobs(ctx, client.AdminJobQuery{PageSize: maxNewest}) {
		if err != nil {
			return 0, err
		}
		if seen++; seen > maxNewest || len(argument) < minBegin {
			break
		}
		if strings.HasPrefix(j.ID, argument) {
			found = append(found, j)
		}
	}
	switch len(found) {
	case 0:
		return 0, noJob(ctx, server, argument)
	case 1:
		return found[0].Number, nil
	}
	return 0, ambiguousJob(argument, found)
}

// noJob is the error of an argument that names no job. It says what may have been meant.
func noJob(ctx context.Context, server *client.Admin, argument string) error {
	named := Printable(argument)
	contract, queue, err := ParseQueue(argument)
	if err != nil || NoQueue(ctx, server, contract, queue) != "" {
		return FailedError("there is no job with the id %s, and no dead letter of one: a job of "+
			"Relay is gone once it is completed; 'millrace jobs list' lists those that there are",
			named)
	}
	return FailedError("there is no job with the id %s; 'millrace queues show %[1]s' is about the "+
		"queue", named)
}

// NoQueue says that the server lists no queue of a name, and which one may be meant; empty where it
// lists one, or cannot be asked. An empty contract means any.
func NoQueue(ctx context.Context, server *client.Admin, contract, queue string) string {
	var names []string
	for q, err := range server.Queues(ctx, client.AdminQueueFilter{Contract: contract,
		PageSize: maxPage}) {
		if err != nil || q.Queue == queue {
			return ""
		}
		if names = append(names, q.Queue); len(names) == maxPage {
			break
		}
	}
	text := "no queue " + queue + " is known"
	if contract != "" {
		text = "no queue " + QueueName(contract, queue) + " is known"
	}
	if similar, ok := setting.Closest(queue, names); ok {
		return text + "; did you mean " + similar + "?"
	}
	return text
}

// filtersOf returns what an argument that is no number may mean: an id, or one with its contract
// and perhaps its queue before it.
func filtersOf(ctx context.Context, server *client.Admin,
	argument string) ([]client.AdminFilter, error) {
	filters := []client.AdminFilter{{ID: argument}}
	contract, rest, isNamed := strings.Cut(argument, "/")
	if !isNamed {
		return filters, nil
	}
	known := false
	for name, err := range contractNames(ctx, server) {
		if err != nil {
			return nil, err
		}
		known = known || name == contract
	}
	if !known || rest == "" {
		return filters, nil
	}
	filters = append(filters, client.AdminFilter{Contract: contract, ID: rest})
	if at := strings.LastIndex(rest, "/"); at > 0 && at < len(rest)-1 {
		filters = append(filters, client.AdminFilter{Contract: contract, Queue: rest[:at],
			ID: rest[at+1:]})
	}
	return filters, nil
}

// ambiguousJob is the error of an id that several jobs have. It lists them.
func ambiguousJob(argument string, found []client.AdminJob) error {
	var lines strings.Builder
	for _, j := range found[:min(len(found), maxCandidates)] {
		kind := ""
		if j.Kind != nil {
			kind = ", " + *j.Kind
		}
		fmt.Fprintf(&lines, "\n  %d  %s", j.Number, Printable(fmt.Sprintf("%s (%s%s)",
			QueueName(j.Contract, j.Queue), j.State, kind)))
	}
	if len(found) > maxCandidates {
		lines.WriteString("\n  and others")
	}
	return FailedError("several jobs have the id %s; name one by its number:%s",
		Printable(argument), lines.String())
}
