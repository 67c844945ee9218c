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
// exists, and the update is run again with it. From then on every insert of the store has it, until
// none has met an existing identity for conflictPeriod. So submissions that are repeated all the
// time are not paid for twice, and the server logs at most one error in conflictPeriod for each
// node and each transaction that runs at that moment (decision 0049).

// conflictPeriod is how long inserts have ON CONFLICT after one that met an existing identity.
const conflictPeriod = time.Minute

// insertNew is sqlstore.InsertJobs for jobs whose identities are free.
var insertNew = func() *sqlstore.Bulk {
	b := *sqlstore.InsertJobs
	b.Tail = ""
	return &b
}()

// conflictWindow remembers when an insert last met an existing identity.
type conflictWindow struct{ last atomic.Pointer[time.Time] }

func (t *conflictWindow) record(now time.Time) { t.last.Store(&now) }

// statement returns the one for an insert of jobs.
func (t *conflictWindow) statement(now time.Time) *sqlstore.Bulk {
	if last := t.last.Load(); last != nil && now.Sub(*last) < conflictPeriod {
		return sqlstore.InsertJobs
	}
	return insertNew
}

// errIdentityExists is wrapped by the error of an insertNew that met an existing identity.
var errIdentityExists = errors.New("an identity exists already")

// asIdentityExists returns the error of insertNew: one that wraps errIdentityExists if an identity
// exists already.
func asIdentityExists(err error) error {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || pg.Code != "23505" {
		return err
	}
	return &job.Error{Kind: job.Unavailable, Op: insertNew.Name, Msg: "the store is busy",
		Err: errors.Join(errIdentityExists, err)}
}
