package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/internal/config"
)

// How a command ends.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitUnable      = 3
	exitServer      = 4
	exitInterrupted = 130
)

const exitHelp = `Exit codes:
  0    done; also a server or worker that was asked to stop and did
  1    the work failed, or the accounts do not balance; not for jobs that failed in a worker
  2    the command line or a setting is wrong; nothing was started
  3    what is needed here is not to be had: an address or data directory in use, a store that is away
  4    the server cannot be reached, or refuses the token
  130  stopped by a signal before the work was done`

// exitError is an error that says how the process ends.
type exitError struct {
	code int
	err  error
}

func (f *exitError) Error() string { return f.err.Error() }
func (f *exitError) Unwrap() error { return f.err }

func withCode(code int, err error) error {
	if err == nil {
		return nil
	}
	return &exitError{code, err}
}

func usageError(format string, args ...any) error {
	return &exitError{exitUsage, fmt.Errorf(format, args...)}
}

func unableError(format string, args ...any) error {
	return &exitError{exitUnable, fmt.Errorf(format, args...)}
}

func failedError(format string, args ...any) error {
	return &exitError{exitFailed, fmt.Errorf(format, args...)}
}

// errInterrupted is the end of work that a signal cut short.
var errInterrupted = &exitError{exitInterrupted, errors.New("interrupted")}

// errLogged is a failure that the log has told of.
var errLogged = errors.New("logged")

// exitCode tells how the process ends. What carries no code came from cobra: the command line is
// wrong.
func exitCode(err error) int {
	var f *exitError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &f):
		return f.code
	default:
		return exitUsage
	}
}

// errorText is what is said about an error; every line names the program.
func errorText(err error) string {
	told := err != nil && !errors.Is(err, errLogged)
	if !told {
		return ""
	}
	var settings *config.Error
	if errors.As(err, &settings) {
		return settings.Error() // a line for each problem
	}
	// the SDK names itself too
	text := strings.ReplaceAll("millrace: "+err.Error(), ": millrace: ", ": ")
	var f *exitError
	if !errors.As(err, &f) {
		text += "\nRun 'millrace --help' for usage."
	}
	return text
}

// remoteError gives the failure of a call its code.
func remoteError(ctx context.Context, err error) error {
	var e *client.Error
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return errInterrupted
	case errors.Is(err, client.ErrUnauthorized):
		return withCode(exitServer,
			fmt.Errorf("the server refuses the token (--token or MILLRACE_TOKEN): %w", err))
	case errors.As(err, &e) && e.Status == 0 &&
		(errors.Is(err, client.ErrInvalid) || errors.Is(err, client.ErrCycle)):
		return withCode(exitUsage, &unsent{err}) // nothing was sent
	case certificateRejected(err):
		return withCode(exitServer, fmt.Errorf(
			"the server's certificate is not trusted (--cacert or %s): %w", envCACert, err))
	case errors.As(err, &e) && e.Status == http.StatusBadRequest &&
		strings.HasSuffix(e.Message, plainToTLS):
		return withCode(exitServer, fmt.Errorf("the server cannot be reached without TLS "+
			"(--server or %s, with https://): %w", envServer, err))
	case errors.As(err, &e) && e.Status == 0 && e.Retryable():
		return withCode(exitServer, unreachableError(err))
	default:
		return withCode(exitFailed, err)
	}
}

// unsent is a request that was refused before it was sent, told without what it would have been.
type unsent struct{ err error }

func (u *unsent) Unwrap() error { return u.err }

func (u *unsent) Error() string {
	text := u.err.Error()
	if _, told, ok := strings.Cut(text, client.ErrInvalid.Error()+": "); ok {
		return told
	}
	return text
}

// plainToTLS is what a server written in Go answers to a request without TLS where it expects
// one with it.
const plainToTLS = "Client sent an HTTP request to an HTTPS server."

func unreachableError(err error) error {
	return fmt.Errorf("the server cannot be reached (--server or %s): %w", envServer, err)
}

// certificateRejected reports whether a call failed because the server's certificate is not
// trusted: another try would meet the same one.
func certificateRejected(err error) bool {
	var refused *tls.CertificateVerificationError
	return errors.As(err, &refused)
}
