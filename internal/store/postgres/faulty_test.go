package postgres_test

import (
	"encoding/binary"
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/store/postgres"
	"github.com/millrace/millrace/internal/store/storetest"
	"github.com/millrace/millrace/internal/store/storetest/pgtest"
)

// TestFaultyServer: a server that fails at the worst moments.
func TestFaultyServer(t *testing.T) {
	storetest.RunFaulty(t, func(tb testing.TB, clock func() time.Time,
		f *storetest.Faults) store.Store {
		return mustOpen(tb, postgres.Config{URL: faultyURL(tb, pgtest.URL(tb), f), Now: clock})
	})
}

// faultyURL returns the URL of a relay to the server of another one: it makes faults in what both
// say to each other.
func faultyURL(tb testing.TB, to string, f *storetest.Faults) string {
	tb.Helper()
	return relayURL(tb, to, f, func(net.Conn) bool { return true })
}

// relayURL is faultyURL for a relay that closes the connections that admit does not let in.
func relayURL(tb testing.TB, to string, f *storetest.Faults, admit func(net.Conn) bool) string {
	tb.Helper()
	server, err := pgx.ParseConfig(to)
	if err != nil {
		tb.Fatal(err)
	}
	u, err := url.Parse(to)
	if err != nil {
		tb.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	var mu sync.Mutex
	var open []net.Conn
	var all sync.WaitGroup
	tb.Cleanup(func() {
		l.Close()
		mu.Lock()
		for _, c := range open {
			c.Close()
		}
		mu.Unlock()
		all.Wait()
	})
	all.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			if !admit(client) {
				client.Close()
				continue
			}
			network, address := pgconn.NetworkAddress(server.Host, server.Port)
			far, err := net.Dial(network, address)
			if err != nil {
				tb.Error(err)
				client.Close()
				continue
			}
			mu.Lock()
			open = append(open, client, far)
			mu.Unlock()
			r := &relay{client: client, server: far, faults: f}
			all.Go(r.ask)
			all.Go(r.answer)
		}
	})
	u.Host = l.Addr().String()
	q := u.Query()
	q.Set("sslmode", "disable")
	u.RawQuery = q.Encode()
	return u.String()
}

// relay is one connection of a client to a server.
type relay struct {
	client, server net.Conn
	faults         *storetest.Faults

	mu sync.Mutex // of what is written to the client
}

func (r *relay) close() {
	r.client.Close()
	r.server.Close()
}

// message reads one message, whole, and its kind; the first of a client has none.
func message(from io.Reader, kinds int) (whole []byte, kind byte, err error) {
	whole = make([]byte, kinds+4)
	if _, err := io.ReadFull(from, whole); err != nil {
		return nil, 0, err
	}
	body := make([]byte, max(0, int(binary.BigEndian.Uint32(whole[kinds:]))-4))
	_, err = io.ReadFull(from, body)
	return append(whole, body...), whole[0], err
}

var refusal = &pgproto3.ErrorResponse{Severity: "ERROR", SeverityUnlocalized: "ERROR",
	Code: "XX000", Message: "the server was made to fail"}

// send writes messages to the client.
func (r *relay) send(messages ...pgproto3.BackendMessage) error {
	var text []byte
	var err error
	for _, m := range messages {
		if text, err = m.Encode(text); err != nil {
			return err
		}
	}
	return r.write(text)
}

func (r *relay) write(text []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, err := r.client.Write(text)
	return err
}

// ask forwards what the client sends.
func (r *relay) ask() {
	defer r.close()
	text, _, err := message(r.client, 0)
	for err == nil {
		if _, err = r.server.Write(text); err != nil {
			return
		}
		text, err = r.next()
	}
}

// next is the client's next message that the server is to get. A transaction that must not begin
// is refused here; one that must be undone by its commit is rolled back, which the server says in
// its answer.
func (r *relay) next() ([]byte, error) {
	for {
		text, kind, err := message(r.client, 1)
		if err != nil || kind != 'Q' {
			return text, err
		}
		statement := string(text[5 : len(text)-1])
		switch {
		case strings.HasPrefix(statement, "BEGIN") && r.faults.Begins():
			if err := r.send(refusal, &pgproto3.ReadyForQuery{TxStatus: 'I'}); err != nil {
				return nil, err
			}
			continue
		case statement == "COMMIT" && r.faults.Commits():
			return (&pgproto3.Query{String: "ROLLBACK"}).Encode(nil)
		}
		return text, nil
	}
}

// answer forwards what the server sends. After a row that was made an error nothing else comes of
// its statement.
func (r *relay) answer() {
	defer r.close()
	result, broken := 0, false
	for {
		text, kind, err := message(r.server, 1)
		if err != nil {
			return
		}
		switch {
		case kind == 'Z' && broken:
			broken = false
			err = r.send(&pgproto3.ReadyForQuery{TxStatus: 'E'})
		case broken:
		case kind == '2': // bound: a result begins
			result = r.faults.Result()
			err = r.write(text)
		case kind == 'D' && r.faults.Row(result):
			broken = true
			err = r.send(refusal)
		default:
			err = r.write(text)
		}
		if err != nil {
			return
		}
	}
}
