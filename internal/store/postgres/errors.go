package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/millrace/millrace/internal/job"
)

// translate gives a PostgreSQL error its kind by its SQLSTATE. What carries none
// never reached a statement or lost its connection, and who is not let in cannot
// have caused it: the database is away.
func translate(op string, err error) error {
	var known *job.Error
	if err == nil || errors.As(err, &known) {
		return err
	}
	e := &job.Error{Kind: job.Unavailable, Op: op, Msg: "the store is away", Err: err}
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
		e.Kind, e.Msg = job.Aborted, "the caller went away"
	case errors.Is(err, context.DeadlineExceeded):
		e.Msg = "the store is slow"
	}
	return e
}

func kindOfState(code string) (job.Kind, string) {
	switch code {
	case "40001", "40P01", "55P03":
		return job.Unavailable, "the store is busy"
	case "25006":
		return job.Unavailable, "the store is read-only"
	case "25P03":
		return job.Unavailable, "the store gave the transaction up"
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
		return job.Unavailable, "the store is away"
	case "28", "3D":
		return job.Unavailable, "the database refuses the connection"
	case "3F", "42": // nothing that this version asks for is missing in a schema of its own
		return job.Unavailable, "the store's schema is not the one that is needed"
	case "22", "23": // what was sent: a defect of ours
		return job.Internal, ""
	default: // the state the server is in
		return job.Unavailable, "the store failed"
	}
}

// errReadOnly is a database that takes no writes: as a standby it will after a
// failover, so who wants to write tries again.
func errReadOnly(op, msg string) error {
	return &job.Error{Kind: job.Unavailable, Op: op, Msg: msg}
}

// mayRunAgain reports a failure that the database resolves by running the whole
// transaction again: nothing of it was kept.
func mayRunAgain(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && (pg.Code == "40001" || pg.Code == "40P01")
}
