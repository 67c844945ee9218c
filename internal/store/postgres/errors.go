package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/millrace/millrace/internal/job"
)

// translate gives a PostgreSQL error its kind by its SQLSTATE. An error without one is a failure to
// connect or a lost connection, so the database is unavailable. So is one that refuses the
// connection: no request of a caller causes that. A *job.Error passes as it is, so an error may be
// translated twice.
func translate(op string, err error) error {
	_, known := errors.AsType[*job.Error](err)
	if err != nil && !known {
		return newError(op, err)
	}
	return err
}

func newError(op string, err error) *job.Error {
	e := &job.Error{Kind: job.Unavailable, Op: op, Msg: "the store is unavailable", Err: err}
	var pg *pgconn.PgError
	var refused *pgconn.ConnectError
	if errors.As(err, &refused) {
		e.Err = &connectFailure{refused}
	}
	switch {
	case errors.As(err, &pg) && errors.As(err, &refused):
		e.Msg = "the database refuses the connection"
	case errors.As(err, &pg):
		e.Kind, e.Msg = kindOfState(pg.Code)
	case errors.Is(err, context.Canceled):
		e.Kind, e.Msg = job.Aborted, "the request was canceled"
	case errors.Is(err, context.DeadlineExceeded):
		e.Msg = "the store is slow"
	}
	return e
}

// kindOfState returns the kind and the message of a SQLSTATE: the code itself, or else its class,
// the first two characters. A class that is not listed is the state of the server and not a defect
// here.
func kindOfState(code string) (job.Kind, string) {
	switch code {
	case "40001", "40P01", "55P03":
		return job.Unavailable, "the store is busy"
	case "25006":
		return job.Unavailable, "the store is read-only"
	case "25P03":
		return job.Unavailable, "the database ended an idle transaction"
	case "53100":
		return job.Unavailable, "the store's disk is full"
	case "57014":
		return job.Unavailable, "the store is slow"
	case "42501":
		return job.Unavailable, "permission denied by the database"
	case "54000", "54001":
		return job.TooLarge, "larger than the store can hold"
	case "22021", "22P05":
		return job.Invalid, "holds a character the store cannot keep"
	}
	switch code[:min(2, len(code))] {
	case "08", "53", "57", "58": // connection, resources, shut-down, disk
		return job.Unavailable, "the store is unavailable"
	case "28", "3D":
		return job.Unavailable, "the database refuses the connection"
	case "3F", "42": // the schema of this version has all that its statements name
		return job.Unavailable, "the store's schema is not the one that is needed"
	case "22", "23": // wrong data or a broken constraint: a defect
		return job.Internal, ""
	default: // the state of the server
		return job.Unavailable, "the store failed"
	}
}

// errReadOnly is the error of a database that refuses writes. It is Unavailable, not ReadOnly: a
// standby accepts writes after a failover, so trying again may help.
func errReadOnly(op, msg string) error {
	return &job.Error{Kind: job.Unavailable, Op: op, Msg: msg}
}

// mayRunAgain reports a serialization failure, a deadlock or errIdentityExists: nothing of the
// transaction was kept, and it may succeed when it is run again.
func mayRunAgain(err error) bool {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return false
	}
	return pg.Code == "40001" || pg.Code == "40P01" || errors.Is(err, errIdentityExists)
}
