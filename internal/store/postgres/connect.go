package postgres

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5/pgconn"
)

// connectFailure is a failure to connect whose message names, in one line, the hosts that were
// tried and the reasons.
type connectFailure struct{ err *pgconn.ConnectError }

func (f *connectFailure) Unwrap() error { return f.err }

// Error names each reason once: the driver reports it for each address of a host, with and
// without TLS.
func (f *connectFailure) Error() string {
	return strings.Join(f.hosts(), ",") + ": " + strings.Join(f.reasons(), "; ")
}

// hosts returns the addresses that were tried, in their order, each once.
func (f *connectFailure) hosts() []string {
	c := f.err.Config
	hosts := []string{address(c.Host, c.Port)}
	for _, other := range c.Fallbacks {
		if at := address(other.Host, other.Port); !slices.Contains(hosts, at) {
			hosts = append(hosts, at)
		}
	}
	return hosts
}

// address returns host and port, or the path of a socket.
func address(host string, port uint16) string {
	_, at := pgconn.NetworkAddress(host, port)
	return at
}

// reasons returns why the tries failed, in their order, each once.
func (f *connectFailure) reasons() []string {
	failures := []error{f.err.Unwrap()}
	var several interface{ Unwrap() []error }
	if errors.As(f.err, &several) {
		failures = several.Unwrap()
	}
	var reasons []string
	for _, err := range failures {
		if text := reason(err); !slices.Contains(reasons, text) {
			reasons = append(reasons, text)
		}
	}
	return reasons
}

// reason returns the message of the server, the network or the resolver without the address.
func reason(err error) string {
	var pg *pgconn.PgError
	var unresolved *net.DNSError
	var number syscall.Errno
	switch {
	case errors.As(err, &pg):
		return fmt.Sprintf("%s (SQLSTATE %s)", pg.Message, pg.Code)
	case errors.As(err, &unresolved):
		return unresolved.Err
	case errors.As(err, &number):
		return number.Error()
	case pgconn.Timeout(err):
		return "no answer in time"
	}
	if inner := errors.Unwrap(err); inner != nil { // without the address
		err = inner
	}
	return strings.Join(strings.Fields(err.Error()), " ")
}
