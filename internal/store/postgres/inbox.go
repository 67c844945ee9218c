package postgres

import (
	"cmp"
	"database/sql"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/store/sqlstore"
)

// The inbox has what producers submit by SQL, see migration 16. Its functions insert the rows, in
// the transactions of producers; a node reads, updates and removes them. A producer's transaction
// is claimed for the time of a lease by moving its due time to the end of that. The lease keeps
// nodes from doing the same work, and nothing else depends on it: a request is submitted in a
// transaction that has locked its row and found it waiting.

const inboxColumns = "number,id::text,contract,owner,job_type,idempotency_key,producer,state," +
	"transaction,created_at,finished_at,seq,job_id,error"

// isWaiting is the condition of a waiting request, for statements that find it by its number. It
// keeps the planner from the indexes of waiting requests, which old statistics show as empty.
const isWaiting = "state||''='waiting'"

var (
	inboxDue = &sqlstore.Statement{Name: "inbox_due",
		SQL: "SELECT EXISTS (SELECT FROM inbox_transactions WHERE due_at<=$1)"}
	// The due time of one that was never claimed is 0. However many of these there are, half of
	// a claim is for those that were claimed before.
	claimInbox = &sqlstore.Statement{Name: "claim_inbox", SQL: "WITH retried AS (" +
		claimable("due_at>0 AND due_at<=$1", "due_at") + ` LIMIT ($2::int8+1)/2 FOR UPDATE SKIP LOCKED),
		unclaimed AS (` + claimable("due_at=0", "began") +
		` LIMIT $2::int8-(SELECT count(*) FROM retried) FOR UPDATE SKIP LOCKED)
		UPDATE inbox_transactions AS t SET due_at=$3
		FROM (SELECT * FROM retried UNION ALL SELECT * FROM unclaimed) AS due WHERE ` +
		indexLookup("t.number", "due.number") + " RETURNING t.number,t.tries,due.due_at=0"}
	// Rows follow each other until their requests have more than $3 bytes.
	readInbox = &sqlstore.Statement{Name: "read_inbox", SQL: "SELECT " + inboxColumns + `,request
		FROM (SELECT i.*,x.place,sum(octet_length(request)) OVER (ORDER BY x.place,number) AS total
			FROM unnest($1::int8[]) WITH ORDINALITY AS x(claimed,place) CROSS JOIN LATERAL (
				SELECT * FROM inbox WHERE transaction=x.claimed AND state='waiting'
				ORDER BY number LIMIT $2) AS i
			ORDER BY x.place,number LIMIT $2) AS w
		WHERE total-octet_length(request)<$3 ORDER BY place,number`}
	lockInbox = &sqlstore.Statement{Name: "lock_inbox", SQL: `SELECT number FROM inbox
		WHERE number=ANY($1::int8[]) AND ` + isWaiting + ` ORDER BY number FOR UPDATE`}
	updateInbox = &sqlstore.Statement{Name: "update_inbox", SQL: `UPDATE inbox AS i SET state=u.to_state,
		seq=NULLIF(u.seq,0),job_id=NULLIF(u.job_id,''),error=NULLIF(u.error,''),
		finished_at=CASE u.to_state WHEN 'waiting' THEN NULL ELSE $6::int8 END,
		request=CASE u.to_state WHEN 'submitted' THEN NULL ELSE i.request END
		FROM unnest($1::int8[],$2::text[],$3::int8[],$4::text[],$5::text[])
			AS u(number,to_state,seq,job_id,error)
		WHERE ` + indexLookup("i.number", "u.number") + " AND " + isWaiting}
	endInbox = &sqlstore.Statement{Name: "end_inbox", SQL: `DELETE FROM inbox_transactions AS t
		WHERE t.number=ANY($1::int8[]) AND NOT EXISTS (SELECT FROM inbox AS i
			WHERE i.transaction=t.number AND i.state='waiting')`}
	delayInbox = &sqlstore.Statement{Name: "delay_inbox", SQL: `UPDATE inbox_transactions AS t
		SET due_at=u.due_at,tries=u.tries
		FROM unnest($1::int8[],$2::int8[],$3::int8[]) AS u(number,due_at,tries) WHERE ` +
		indexLookup("t.number", "u.number")}
	retryInbox = &sqlstore.Statement{Name: "retry_inbox", SQL: `WITH made AS (
		INSERT INTO inbox_transactions (xid,began)
		VALUES (pg_current_xact_id()::text::int8,$2) RETURNING number)
		UPDATE inbox AS i SET state='waiting',error=NULL,finished_at=NULL,transaction=made.number
		FROM made WHERE i.number=$1`}
	deleteInbox = &sqlstore.Statement{Name: "delete_inbox",
		SQL: "DELETE FROM inbox WHERE number=$1"}
	getInbox = &sqlstore.Statement{Name: "get_inbox", SQL: "SELECT " + inboxColumns +
		",request FROM inbox WHERE id=$1::uuid"}
	getInboxLocked = &sqlstore.Statement{Name: "lock_inbox_by_id", SQL: getInbox.SQL +
		" FOR UPDATE"}
	pruneInbox = &sqlstore.Statement{Name: "prune_inbox", SQL: `DELETE FROM inbox WHERE number IN (
		SELECT number FROM inbox WHERE finished_at IS NOT NULL AND finished_at<$1
		ORDER BY finished_at LIMIT $2 FOR UPDATE SKIP LOCKED)`}
	countInbox = &sqlstore.Statement{Name: "count_inbox", SQL: "SELECT " + countOf("waiting") +
		"," +
		countOf("refused") + `,(SELECT created_at FROM inbox WHERE state='waiting'
		ORDER BY -number DESC LIMIT 1)`}

	// A page looks at the newest requests of a state, of which those of a contract may be few.
	inboxPage = eachState("list_inbox", "SELECT "+inboxColumns+`,NULL FROM inbox
		WHERE # AND ($3='' OR contract=$3) ORDER BY % LIMIT $4`)
	inboxScanEnd = eachState("inbox_scan_end", `SELECT number FROM inbox WHERE #
		ORDER BY % OFFSET $2 LIMIT 1`)
)

// claimable selects those of the transactions that fit a condition which Claim may claim, the first
// that are due. since is from when on one is due.
func claimable(condition, since string) string {
	return "SELECT number,due_at FROM inbox_transactions AS t WHERE " + condition +
		" AND (cardinality($4::text[])=0 OR " + since + `<=$5
			OR coalesce((SELECT i.contract FROM inbox AS i WHERE i.transaction=t.number
				AND i.state='waiting' ORDER BY i.number LIMIT 1)<>ALL($4),true))
		ORDER BY due_at,number+0`
}

// countOf counts the requests in a state up to $1.
func countOf(state job.InboxState) string {
	return "(SELECT count(*) FROM (SELECT FROM inbox WHERE state='" + string(state) +
		"' ORDER BY -number LIMIT $1) AS w)"
}

// eachState makes a statement for each state, and for all of them. The condition takes the place of
// #, with bounds of the number that a page has, and the order that of %, both as the index has
// them: the requests in a state with an index of its own are few, so the planner may use no other.
func eachState(name, text string) map[job.InboxState]*sqlstore.Statement {
	bounds, isPage := "number<$1", strings.Contains(text, "$3")
	if isPage {
		bounds += " AND number>=$2"
	}
	negated := strings.NewReplacer("number<$1", "-number>-$1::int8", "number>=$2",
		"-number<=-$2::int8").Replace(bounds)
	with := func(state, condition, order string) *sqlstore.Statement {
		return &sqlstore.Statement{Name: name + state,
			SQL: strings.NewReplacer("#", condition, "%", order).Replace(text)}
	}
	return map[job.InboxState]*sqlstore.Statement{
		"":                 with("", bounds, "number DESC"),
		job.InboxSubmitted: with("_submitted", bounds+" AND state='submitted'", "number DESC"),
		job.InboxWaiting:   with("_waiting", negated+" AND state='waiting'", "-number"),
		job.InboxRefused:   with("_refused", negated+" AND state='refused'", "-number"),
	}
}

// Inbox is the inbox in a transaction or view of a store.
type Inbox struct{ tx *sqlstore.Tx }

// InboxOf returns the inbox in a transaction or view of a Store.
func InboxOf(r store.Reader) Inbox { return Inbox{r.(*sqlstore.Tx)} }

// IsDue is documented at engine.Inbox, as are all methods below.
func (in Inbox) IsDue(by time.Time) (due bool, err error) {
	found, err := sqlstore.Collect(in.tx, inboxDue, func(rows *sql.Rows) (is bool, err error) {
		err = rows.Scan(&is)
		return is, err
	}, sqlstore.Micros(by))
	if err != nil {
		return false, err
	}
	return found[0], nil
}

func (in Inbox) Claim(n int, until time.Time, except []string, before time.Time) (
	[]job.InboxTransaction, error) {
	return sqlstore.Collect(in.tx, claimInbox, func(rows *sql.Rows) (o job.InboxTransaction,
		err error) {
		err = rows.Scan(&o.Number, &o.FailedAttempts, &o.IsNew)
		return o, err
	}, sqlstore.Micros(in.tx.Now()), n, sqlstore.Micros(until), append([]string{}, except...),
		sqlstore.Micros(before))
}

func (in Inbox) Load(s job.InboxSelector) ([]job.InboxRequest, error) {
	switch {
	case len(s.Transactions) > 0:
		return sqlstore.Collect(in.tx, readInbox, scanInbox, s.Transactions, s.Limit, s.Bytes)
	case len(s.Waiting) > 0:
		return sqlstore.Collect(in.tx, lockInbox, func(rows *sql.Rows) (r job.InboxRequest,
			err error) {
			r.Number, err = scanNumber(rows)
			return r, err
		}, s.Waiting)
	case s.Lock:
		return sqlstore.Collect(in.tx, getInboxLocked, scanInbox, s.ID)
	}
	return sqlstore.Collect(in.tx, getInbox, scanInbox, s.ID)
}

func (in Inbox) Apply(c job.InboxChanges) error {
	if err := in.update(c.Update); err != nil {
		return err
	}
	if err := in.end(c.End); err != nil {
		return err
	}
	if err := in.delay(c.Delay); err != nil {
		return err
	}
	for _, number := range c.Retry {
		_, err := in.tx.Exec(retryInbox, number, sqlstore.Micros(in.tx.Now()))
		if err != nil {
			return err
		}
	}
	for _, number := range c.Delete {
		if _, err := in.tx.Exec(deleteInbox, number); err != nil {
			return err
		}
	}
	return nil
}

// update updates requests and ends their transactions.
func (in Inbox) update(requests []job.InboxRequest) error {
	n := len(requests)
	if n == 0 {
		return nil
	}
	numbers, jobs, of := make([]int64, n), make([]int64, n), make([]int64, n)
	states, ids, errs := make([]string, n), make([]string, n), make([]string, n)
	for i := range requests {
		r := &requests[i]
		numbers[i], states[i], jobs[i] = r.Number, string(r.State), r.Job
		ids[i], errs[i], of[i] = r.JobID, r.Error, r.Transaction
	}
	_, err := in.tx.Exec(updateInbox, numbers, states, jobs, ids, errs,
		sqlstore.Micros(in.tx.Now()))
	if err != nil {
		return err
	}
	return in.end(of)
}

// end removes those of the transactions in which no request waits.
func (in Inbox) end(transactions []int64) error {
	if len(transactions) == 0 {
		return nil
	}
	_, err := in.tx.Exec(endInbox, transactions)
	return err
}

// delay makes transactions due after a time each, and sets how often they were tried.
func (in Inbox) delay(transactions []job.InboxTransaction) error {
	n := len(transactions)
	if n == 0 {
		return nil
	}
	numbers, times, tries := make([]int64, n), make([]int64, n), make([]int64, n)
	for i, one := range transactions {
		numbers[i], tries[i] = one.Number, int64(one.FailedAttempts)
		times[i] = sqlstore.Micros(in.tx.Now().Add(one.Delay))
	}
	_, err := in.tx.Exec(delayInbox, numbers, times, tries)
	return err
}

// maxInboxScan is how many requests a page looks at: those of a contract may be rare.
const maxInboxScan = 10_000

func (in Inbox) List(f job.InboxFilter) (page []job.InboxRequest, next int64, err error) {
	before, lowest := cmp.Or(f.Before, maxNumber), int64(0)
	end, err := sqlstore.Collect(in.tx, inboxScanEnd[f.State], scanNumber, before, maxInboxScan-1)
	if err != nil {
		return nil, 0, err
	}
	if len(end) > 0 {
		lowest = end[0]
	}
	page, err = sqlstore.Collect(in.tx, inboxPage[f.State], scanInbox, before, lowest, f.Contract,
		f.Limit)
	if err != nil {
		return nil, 0, err
	}
	if len(page) == f.Limit {
		lowest = page[len(page)-1].Number
	}
	return page, lowest, nil
}

// maxNumber is above the numbers of all requests.
const maxNumber = int64(1<<63 - 1)

func (in Inbox) Count(limit int) (job.InboxCount, error) {
	found, err := sqlstore.Collect(in.tx, countInbox, func(rows *sql.Rows) (c job.InboxCount,
		err error) {
		var oldest sql.NullInt64
		if err = rows.Scan(&c.Waiting, &c.Refused, &oldest); oldest.Valid {
			c.OldestWaiting = sqlstore.FromMicros(oldest.Int64)
		}
		return c, err
	}, limit)
	if err != nil {
		return job.InboxCount{}, err
	}
	return found[0], nil
}

func (in Inbox) Prune(before time.Time, n int) (int, error) {
	removed, err := in.tx.Exec(pruneInbox, sqlstore.Micros(before), n)
	return int(removed), err
}

func scanNumber(rows *sql.Rows) (n int64, err error) {
	err = rows.Scan(&n)
	return n, err
}

// scanInbox reads a row of inboxColumns and the text of the request.
func scanInbox(rows *sql.Rows) (r job.InboxRequest, err error) {
	var key, jobID, reason sql.NullString
	var created int64
	var finished, number sql.NullInt64
	err = rows.Scan(&r.Number, &r.ID, &r.Contract, &r.Owner, &r.Type, &key, &r.Producer, &r.State,
		&r.Transaction, &created, &finished, &number, &jobID, &reason, &r.Body)
	r.Key, r.JobID, r.Error, r.Job = key.String, jobID.String, reason.String, number.Int64
	r.CreatedAt = sqlstore.FromMicros(created)
	if finished.Valid {
		r.FinishedAt = sqlstore.FromMicros(finished.Int64)
	}
	return r, err
}
