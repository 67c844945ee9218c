package sqlstore

import (
	"cmp"
	"database/sql"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/millrace/millrace/internal/job"
)

// Events and messages are numbered by the database in the order in which they are inserted. A
// transaction locks a job before it records an event of it, so the numbers of one job grow in the
// order in which things happened.
var (
	addEvents = insertInto("add_events", "events",
		[]Column{{"seq", Integer}, {"cause", Text}, {"prev", Text},
			{"next", Text}, {"run_id", Bytes}, {"at", Integer}, {"reason", Text}}, "")
	getEvents = &Statement{"get_events",
		"SELECT id,seq,cause,prev,next,run_id,at,reason FROM events WHERE seq=$1 ORDER BY id " +
			"{limit $2}"}
	deleteEvents = &Statement{"delete_events", "DELETE FROM events WHERE seq {in $1}"}

	addMessages = insertInto("add_messages", "outbox",
		[]Column{{"contract", Text}, {"scope", Text}, {"key", Text},
			{"seq", Integer}, {"cause", Text}, {"prev", Text}, {"next", Text}, {"at", Integer},
			{"reason", Text}, {"body", Bytes}}, "")
	getMessages    = messagesStatements() // for n job types at index n-1
	newestMessage  = &Statement{"newest_message", "SELECT COALESCE(MAX(id),0) FROM outbox"}
	deleteMessages = &Statement{"delete_messages", "DELETE FROM outbox WHERE id {in $1}"}
)

// maxJobTypes is how many job types one read of the outbox may name.
const maxJobTypes = 16

// messagesStatements makes the reads of 1 to maxJobTypes job types. All have one name, as a
// metric label should not depend on how many job types a node publishes.
func messagesStatements() (all [maxJobTypes]*Statement) {
	for i := range all {
		all[i] = &Statement{"get_messages", messagesOf(i + 1)}
	}
	return all
}

// messagesOf reads the messages of n job types in one statement, so that all are of one moment.
// The job type is compared with >= and <=: with = a planner might read all messages by their
// number and skip those of other job types, however many there are. Only the index on job type
// and number has the order that is asked for here.
func messagesOf(n int) string {
	const columns = "id,contract,scope,key,seq,cause,prev,next,at,reason,body"
	each := make([]string, n)
	for i := range each {
		each[i] = fmt.Sprintf(`SELECT %s FROM outbox
		WHERE contract>=$%d AND contract<=$%[2]d ORDER BY contract,id {limit $%d}`,
			columns, i+1, n+1)
		if n > 1 {
			each[i] = fmt.Sprintf("SELECT %s FROM (%s) AS m%d", columns, each[i], i)
		}
	}
	return strings.Join(each, " UNION ALL ")
}

// Events is documented at the port, as are all methods below.
func (t *Tx) Events(seq int64, limit int) ([]job.Event, error) {
	if limit == 0 {
		limit = math.MaxInt32
	}
	return collect(t, getEvents, func(rows *sql.Rows) (e job.Event, err error) {
		var run []byte
		var at int64
		err = rows.Scan(&e.ID, &e.Job, &e.Cause, &e.Prev, &e.Next, &run, &at, &e.Reason)
		e.At = fromMicros(at)
		if len(run) == len(e.Run) {
			e.Run = job.RunID(run)
		}
		return e, err
	}, seq, limit)
}

// addEvents appends to the histories. An event without a run stores NULL.
func (t *Tx) addEvents(events []job.Event) error {
	rows := make([][]any, len(events))
	for i, e := range events {
		var run any
		if !e.Run.IsZero() {
			run = e.Run[:]
		}
		rows[i] = []any{e.Job, string(e.Cause), string(e.Prev), string(e.Next), run, Micros(e.At),
			e.Reason}
	}
	return t.bulk(addEvents, rows)
}

// deleteRows runs a delete by numbers, unless there are none.
func (t *Tx) deleteRows(s *Statement, ids []int64) error {
	if len(ids) == 0 {
		return nil
	}
	_, err := t.exec(s, t.s.Ints(ids))
	return err
}

// addMessages appends to the outbox, in the transaction of the changes that the messages report.
func (t *Tx) addMessages(messages []job.Message) error {
	rows := make([][]any, len(messages))
	for i, m := range messages {
		rows[i] = []any{m.JobID.JobType, m.JobID.Scope, m.JobID.Key, m.Job, string(m.Cause),
			string(m.Prev), string(m.Next), Micros(m.At), m.Reason, nullable(m.Body)}
	}
	return t.bulk(addMessages, rows)
}

func (t *Tx) Messages(jobTypes []string, n int) ([]job.Message, error) {
	if len(jobTypes) == 0 {
		return nil, nil
	}
	args := make([]any, 0, len(jobTypes)+1)
	for _, c := range jobTypes {
		args = append(args, c)
	}
	all, err := collect(t, getMessages[len(jobTypes)-1],
		func(rows *sql.Rows) (m job.Message, err error) {
			var at int64
			err = rows.Scan(&m.ID, &m.JobID.JobType, &m.JobID.Scope, &m.JobID.Key, &m.Job,
				&m.Cause, &m.Prev, &m.Next, &at, &m.Reason, (*blob)(&m.Body))
			m.At = fromMicros(at)
			return m, err
		}, append(args, n)...)
	slices.SortFunc(all, func(a, b job.Message) int { return cmp.Compare(a.ID, b.ID) })
	return all[:min(len(all), n)], err
}

func (t *Tx) NewestMessage() (int64, error) {
	newest, err := collect(t, newestMessage, scanInt)
	if err != nil {
		return 0, err
	}
	return newest[0], nil
}
