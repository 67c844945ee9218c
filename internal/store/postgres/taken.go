package postgres

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store/sqlstore"
)

// Jobs are inserted without ON CONFLICT, which is cheaper: it fails where an identity or an alias
// is taken, and the update is run again with it. From then on every insert of the store has it,
// until none has met a taken identity for takenFor. So submissions that are repeated all the time
// are not paid for twice, and the server logs at most one error in takenFor for each node and each
// transaction that runs at that moment (decision 0049).

// takenFor is how long inserts have ON CONFLICT after one that met a taken identity.
const takenFor = time.Minute

// insertNew is sqlstore.InsertJobs for jobs whose identities are free.
var insertNew = func() *sqlstore.Bulk {
	b := *sqlstore.InsertJobs
	b.Tail = ""
	return &b
}()

// takenLately remembers when an insert last met a taken identity.
type takenLately struct{ last atomic.Pointer[time.Time] }

func (t *takenLately) note(now time.Time) { t.last.Store(&now) }

// insert returns the statement for an insert of jobs.
func (t *takenLately) insert(now time.Time) *sqlstore.Bulk {
	if last := t.last.Load(); last != nil && now.Sub(*last) < takenFor {
		return sqlstore.InsertJobs
	}
	return insertNew
}

// errTaken is wrapped by the error of an insertNew that met a taken identity.
var errTaken = errors.New("an identity is taken")

// asTaken returns the error of insertNew: one that wraps errTaken if an identity was taken.
func asTaken(err error) error {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || pg.Code != "23505" {
		return err
	}
	return &job.Error{Kind: job.Unavailable, Op: insertNew.Name, Msg: "the store is busy",
		Err: errors.Join(errTaken, err)}
}
