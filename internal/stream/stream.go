package stream

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/internal/clock"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/outage"
)

// Spec describes one stream that a contract needs.
type Spec struct {
	Name string // such as JOBS_LOGS
	// Subjects are patterns such as jobs.logs.*. A message goes to the first stream with a
	// pattern that matches its subject.
	Subjects []string
	MaxAge   time.Duration // after which messages are removed; 0 means never
	// Consumer, if set, is a durable consumer: messages that it has not finished stay beyond
	// MaxAge (see Prune).
	Consumer string

	id      string    // see IDs
	created time.Time // of the stream that had the id when it was loaded
}

// Config says where the streams are and which ones are needed.
type Config struct {
	URL     string // nats:// or tls:// addresses, comma separated; empty embeds a server
	Listen  string // the TCP address of the embedded server; empty means none
	Token   string // required from clients of Listen, sent to URL; empty means none
	Dir     string // the files of the embedded server
	Node    string // names the embedded server and the connection
	Specs   []Spec
	Log     *slog.Logger
	Monitor *outage.Monitor // records whether the server answers; may be nil
	Now     func() time.Time

	// StartWhenUsed leaves the start of an embedded server to the first message, if nobody reaches
	// it from outside and its directory has no files yet. BeforeUse, unless nil, is called then,
	// when the streams are open; its error fails what is published, and the next message calls it
	// again.
	StartWhenUsed bool
	BeforeUse     func(context.Context) error
}

// validate names all required members that are missing.
func (c *Config) validate() error {
	var missing []string
	for _, member := range []struct {
		name    string
		missing bool
	}{
		{"Dir", c.URL == "" && c.Dir == ""},
		{"Node", c.Node == ""},
		{"Specs", len(c.Specs) == 0},
		{"Log", c.Log == nil},
		{"Now", c.Now == nil},
	} {
		if member.missing {
			missing = append(missing, member.name)
		}
	}
	if len(missing) > 0 {
		return errors.New("stream: the configuration lacks " + strings.Join(missing, ", "))
	}
	return nil
}

// Streams gives access to all streams. Its methods may be called concurrently.
type Streams struct {
	config   Config
	unlock   func()
	firstUse firstUse
	// These are set before firstUse says that the streams are open.
	embedded *embedded // nil with a URL
	conn     *nats.Conn
	js       jetstream.JetStream
	batches  atomic.Uint64 // counts the batches of this process, for their ids

	mu sync.Mutex // for the ids of the specs
}

// answerTimeout is how long one operation may take before the streams count as unavailable.
const answerTimeout = 10 * time.Second

// Open starts the embedded server or connects to the cluster, and provisions the streams, unless
// these may wait for their first message (Config.StartWhenUsed). It fails when that is impossible,
// since a node without its streams would only fail later. A node calls it once, before it serves:
// the health checks and the outbox need the streams.
func Open(ctx context.Context, c Config) (*Streams, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	c.Specs = slices.Clone(c.Specs) // loadID sets their ids
	s := &Streams{config: c, unlock: func() {},
		firstUse: firstUse{ready: make(chan struct{}), closed: make(chan struct{})}}
	if c.URL == "" {
		if err := s.lockDirectory(); err != nil {
			return nil, err
		}
	}
	if s.mayWait() {
		return s, nil
	}
	if err := s.Start(ctx); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// open connects and provisions. Reconnecting has no limit and no buffer: a message that is
// published while the connection is lost fails at once, and its caller publishes it again under its
// id, so nothing is kept in memory that a crash would lose.
func (s *Streams) open(ctx context.Context) (err error) {
	options := []nats.Option{
		nats.Name("millrace " + s.config.Node),
		nats.MaxReconnects(-1),
		nats.ReconnectBufSize(-1),
		nats.Timeout(5 * time.Second),
		nats.ErrorHandler(s.logAsyncError),
		nats.DisconnectErrHandler(s.disconnected),
		nats.ReconnectHandler(func(*nats.Conn) { s.config.Monitor.Begin()(nil) }),
	}
	if s.config.Token != "" {
		options = append(options, nats.Token(s.config.Token))
	}
	if s.config.URL == "" {
		if err := s.startEmbedded(); err != nil {
			return err
		}
		options = append(options, nats.InProcessServer(s.embedded))
	}
	if s.conn, err = nats.Connect(s.config.URL, options...); err != nil {
		return wrapError("stream.open", "the server of the streams cannot be reached",
			&connectFailure{err})
	}
	s.js, err = jetstream.New(s.conn, jetstream.WithDefaultTimeout(answerTimeout),
		jetstream.WithPublishAsyncMaxPending(4096),
		jetstream.WithPublishAsyncTimeout(answerTimeout))
	if err != nil {
		return wrapError("stream.open", "", err)
	}
	if !supportsBatches(s.conn.ConnectedServerVersion()) {
		return &job.Error{Kind: job.Invalid, Op: "stream.open",
			Msg: "the streams need NATS 2.12 or newer, and the server is " +
				s.conn.ConnectedServerVersion()}
	}
	for i := range s.config.Specs {
		spec := &s.config.Specs[i]
		if err := s.provision(ctx, spec); err != nil {
			return err
		}
		if err := s.loadID(ctx, spec); err != nil {
			return wrapError("stream.open", "the stream "+spec.Name+" cannot be looked up", err)
		}
	}
	return nil
}

// logAsyncError logs errors that belong to no call, such as that of a watcher that reads too
// slowly. Errors that come with a lost connection are reported by the monitor.
func (s *Streams) logAsyncError(conn *nats.Conn, _ *nats.Subscription, err error) {
	if conn.IsConnected() && !errors.Is(err, nats.ErrNoHeartbeat) {
		s.config.Log.Warn("the connection to the streams has an error",
			"error_message", err.Error())
	}
}

// disconnected records a lost connection in the monitor, also while there are no calls.
func (s *Streams) disconnected(conn *nats.Conn, err error) {
	if !conn.IsClosed() && s.config.URL != "" {
		s.reportResult(s.config.Monitor.Begin(), "stream.connection", err)
	}
}

// reportResult records the result of a call in the monitor, and returns its error with a kind. The
// monitor logs one line for an outage and one for its end, whatever the number of callers.
func (s *Streams) reportResult(report func(error), op string, err error) error {
	err = wrapError(op, "", err)
	report(err)
	return err
}

// pingTimeout is how long Ping waits. It is less than the time of a health check, so that streams
// that do not answer are recorded as an outage before the check gives up.
const pingTimeout = 4 * time.Second

// Ping checks that the streams answer. The health check calls it. It asks for the account and reads
// no stream. A server that waits for its first message is well.
func (s *Streams) Ping(ctx context.Context) error {
	if !s.IsOpen() {
		return nil
	}
	report := s.config.Monitor.Begin()
	ctx, cancel := context.WithTimeoutCause(ctx, pingTimeout, errUnavailable)
	defer cancel()
	_, err := s.js.AccountInfo(ctx)
	return s.reportResult(report, "stream.ping", s.contextCause(ctx, err))
}

// retryUntilAnswered sends a request until there is an answer: while a cluster elects a leader,
// requests are refused or lost. A request that is sent twice must have the effect of one: it looks
// something up, creates what exists already in the same form, or publishes under an id.
func (s *Streams) retryUntilAnswered(ctx context.Context,
	request func(context.Context) error) error {
	return s.retryUntilAnsweredWithin(ctx, time.Second, request)
}

// firstAnswerTimeout is how long to wait for the answer to a large request before it is sent again:
// a leader that dies may have lost the request or its answer.
const firstAnswerTimeout = 4 * time.Second

// retryUntilAnsweredWithin is retryUntilAnswered that waits for the first answer as long as wait
// says. Each further wait is twice as long, since the answer may only be slow.
func (s *Streams) retryUntilAnsweredWithin(ctx context.Context, wait time.Duration,
	request func(context.Context) error) error {
	ctx, cancel := withAnswerTimeout(ctx)
	defer cancel()
	for {
		attempt, cancel := context.WithTimeout(ctx, wait)
		err := request(attempt)
		cancel()
		switch {
		case err != nil && ctx.Err() != nil:
			return context.Cause(ctx)
		case hasCode(err, codeNoLeader):
			clock.Sleep(ctx, minPause)
		case errors.Is(err, context.DeadlineExceeded):
			wait *= 2
		default:
			return err
		}
	}
}

// Close closes the connection, then stops the embedded server gracefully. It waits for the embedded
// server, whose files are complete then. Calls in progress fail as Unavailable.
func (s *Streams) Close() {
	s.firstUse.close()
	s.stop()
	s.unlock()
}

// stop closes what open has opened.
func (s *Streams) stop() {
	if s.conn != nil {
		s.conn.Close()
	}
	if s.embedded != nil {
		s.embedded.shutdown()
	}
}

// specForSubject returns the stream that accepts a subject. nil means that no stream does, which is
// a mistake of the caller and no outage.
func (s *Streams) specForSubject(subject string) *Spec {
	for i := range s.config.Specs {
		for _, pattern := range s.config.Specs[i].Subjects {
			if subjectMatches(pattern, subject) {
				return &s.config.Specs[i]
			}
		}
	}
	return nil
}

// specByName returns the stream with a name.
func (s *Streams) specByName(name string) *Spec {
	for i := range s.config.Specs {
		if s.config.Specs[i].Name == name {
			return &s.config.Specs[i]
		}
	}
	return nil
}

// subjectMatches compares token by token; * matches one token, > all remaining ones.
func subjectMatches(pattern, subject string) bool {
	for {
		want, rest, more := strings.Cut(pattern, ".")
		got, remaining, next := strings.Cut(subject, ".")
		switch {
		case want == ">" && got != "":
			return true
		case got == "" || (want != "*" && want != got) || more != next:
			return false
		case !more:
			return true
		}
		pattern, subject = rest, remaining
	}
}
