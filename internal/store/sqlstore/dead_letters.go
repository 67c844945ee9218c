package sqlstore

import (
	"database/sql"
	"encoding/json"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
)

// A dead letter outlives its job, so it has a copy of it, and beside the copy the columns by which
// dead letters are found: job type and queue, the number of the job, and a fingerprint, which is
// the same for failures that are alike. Each list has a statement that leaves the copy out, since a
// copy may be as large as a job and most lists show none.
//
// Dead letters are numbered by the database in the order in which they are inserted. In those of an
// older schema seq is 0 and fingerprint empty; replayed_at is 0 for those that are open.
var (
	addDeadLetters = insertInto("add_dead_letters", "dead_letters",
		[]Column{{"contract", Text}, {"cause", Text}, {"created_at", Integer}, {"job", Bytes},
			{"queue", Text}, {"seq", Integer}, {"fingerprint", Text}}, "")
	updateDeadLetters = updateOf("mark_dead_letters", "dead_letters",
		[]Column{{"queue", Text}, {"seq", Integer}, {"fingerprint", Text},
			{"replayed_at", Integer}, {"replayed_as", Integer}, {"id", Integer}})
	getDeadLetters = listOfDeadLetters("get_dead_letters",
		"{after contract} {limit $3}")
	// The index has the beginning of a name that may be too long for an index.
	deadLettersOfQueue = listOfDeadLetters("dead_letters_of_queue",
		"contract=$4 AND queue=$5 AND {after substr(queue,1,100)} {limit $3}")
	deadLettersOfFingerprint = listOfDeadLetters("alike_dead_letters",
		"{after fingerprint} {limit $3}")
	deadLettersByID = &Statement{"dead_letters_by_id", selectDeadLetters("job") +
		"WHERE id {in $1} ORDER BY id"}
	deadLettersOf = &Statement{"dead_letters_of", selectDeadLetters("job") +
		"WHERE seq {in $1} AND seq>0 ORDER BY id"}
	openDeadLettersOf = &Statement{"open_dead_letters_of", selectDeadLetters("NULL") +
		"WHERE seq {in $1} AND seq>0 AND replayed_at=0 ORDER BY id"}
	oldDeadLetters = &Statement{"old_dead_letters", selectDeadLetters("NULL") +
		"WHERE contract=$1 AND created_at<$2 ORDER BY created_at,id {limit $3}"}
	recentDeadLetters = &Statement{"recent_dead_letters", selectDeadLetters("NULL") +
		"WHERE contract=$1 AND created_at<$2 ORDER BY created_at DESC,id DESC {limit $3}"}
	deadLettersWithoutFingerprint = &Statement{"unmarked_dead_letters", selectDeadLetters("job") +
		"WHERE contract=$1 AND fingerprint='' ORDER BY id {limit $2}"}
	// It names no job type by =, for the reason that messagesOf gives.
	groupDeadLetters = &Statement{"group_dead_letters", `SELECT fingerprint,count(*),
		min(created_at),max(created_at),max(id) FROM (SELECT id,fingerprint,created_at
		FROM dead_letters WHERE {between contract} AND replayed_at=0
		ORDER BY contract DESC,id DESC {limit $4}) AS newest
		WHERE fingerprint<>'' GROUP BY fingerprint`}
	deleteDeadLetters = &Statement{"delete_dead_letters", "DELETE FROM dead_letters WHERE id {in $1}"}
)

// selectDeadLetters begins a read of dead letters, with their jobs or with NULL in their place.
func selectDeadLetters(doc string) string {
	return "SELECT id,seq,contract,queue,cause,created_at,replayed_at,replayed_as,fingerprint," +
		doc + " FROM dead_letters "
}

// deadLetterList is a list of dead letters with their jobs, and without.
type deadLetterList struct{ full, withoutJobs *Statement }

func listOfDeadLetters(name, where string) deadLetterList {
	return deadLetterList{&Statement{name, selectDeadLetters("job") + "WHERE " + where},
		&Statement{name + "_bare", selectDeadLetters("NULL") + "WHERE " + where}}
}

// read reads a list.
func (l *deadLetterList) read(t *Tx, withoutJobs bool, args ...any) ([]job.DeadLetter, error) {
	if withoutJobs {
		return collect(t, l.withoutJobs, scanDeadLetter, args...)
	}
	return collect(t, l.full, scanDeadLetter, args...)
}

// addDeadLetters stores each job as one JSON document: a dead letter is read by people and replayed
// as a whole, never searched by its parts. Bodies are base64 in it and so stay byte for byte.
func (t *Tx) addDeadLetters(deadLetters []job.DeadLetter) error {
	rows := make([][]any, len(deadLetters))
	for i, l := range deadLetters {
		doc, err := json.Marshal(l.Job)
		if err != nil {
			return &job.Error{Kind: job.Internal, Op: "add_dead_letters", Err: err}
		}
		rows[i] = []any{l.Job.ID.JobType, string(l.Cause), Micros(l.CreatedAt), doc, l.Job.Queue,
			l.Job.Seq, l.Fingerprint()}
	}
	return t.bulk(addDeadLetters, rows)
}

// updateDeadLetters writes what may change of dead letters.
func (t *Tx) updateDeadLetters(deadLetters []job.DeadLetter) error {
	rows := make([][]any, len(deadLetters))
	for i, l := range deadLetters {
		at := int64(0)
		if !l.IsOpen() {
			at = Micros(l.ReplayedAt)
		}
		rows[i] = []any{l.Job.Queue, l.Job.Seq, l.Fingerprint(), at, l.ReplayedAs, l.ID}
	}
	return t.bulk(updateDeadLetters, rows)
}

// DeadLetters is documented at the port, as is DeadLetterGroups.
func (t *Tx) DeadLetters(s store.DeadLetterSelector) ([]job.DeadLetter, error) {
	switch {
	case len(s.IDs) > 0:
		return collect(t, deadLettersByID, scanDeadLetter, t.s.Ints(s.IDs))
	case len(s.Jobs) > 0 && s.Open:
		return collect(t, openDeadLettersOf, scanDeadLetter, t.s.Ints(s.Jobs))
	case len(s.Jobs) > 0:
		return collect(t, deadLettersOf, scanDeadLetter, t.s.Ints(s.Jobs))
	case s.Fingerprint != "":
		return deadLettersOfFingerprint.read(t, s.WithoutJobs, s.Fingerprint, s.After, s.Limit)
	case s.Queue != "":
		beginning := []rune(s.Queue)
		beginning = beginning[:min(100, len(beginning))]
		return deadLettersOfQueue.read(t, s.WithoutJobs, string(beginning), s.After, s.Limit,
			s.JobType, s.Queue)
	case !s.Before.IsZero():
		st := oldDeadLetters
		if s.NewestFirst {
			st = recentDeadLetters
		}
		return collect(t, st, scanDeadLetter, s.JobType, Micros(s.Before), s.Limit)
	case s.WithoutFingerprint:
		return collect(t, deadLettersWithoutFingerprint, scanDeadLetter, s.JobType, s.Limit)
	}
	return getDeadLetters.read(t, s.WithoutJobs, s.JobType, s.After, s.Limit)
}

// scanDeadLetter reads a row of selectDeadLetters.
func scanDeadLetter(rows *sql.Rows) (l job.DeadLetter, err error) {
	var jobType, queue string
	var seq, at, replayedAt int64
	var doc []byte
	if err := rows.Scan(&l.ID, &seq, &jobType, &queue, &l.Cause, &at, &replayedAt, &l.ReplayedAs,
		&l.StoredFingerprint, &doc); err != nil {
		return l, err
	}
	l.CreatedAt = fromMicros(at)
	if replayedAt != 0 {
		l.ReplayedAt = fromMicros(replayedAt)
	}
	if doc == nil {
		l.Job.Seq, l.Job.ID.JobType, l.Job.Queue = seq, jobType, queue
		return l, nil
	}
	return l, json.Unmarshal(doc, &l.Job)
}

func (t *Tx) DeadLetterGroups(jobType string, after, upTo int64,
	limit int) ([]job.DeadLetterGroup, error) {
	return collect(t, groupDeadLetters, func(rows *sql.Rows) (g job.DeadLetterGroup, err error) {
		var first, last int64
		err = rows.Scan(&g.Fingerprint, &g.Count, &first, &last, &g.LastID)
		g.FirstAt, g.LastAt = fromMicros(first), fromMicros(last)
		return g, err
	}, jobType, after, upTo, limit)
}
