package stream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/millrace/millrace/internal/clock"
	"github.com/millrace/millrace/internal/disk"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/outage"
)

// lockDirectory makes the directory of the server in the process, and locks it.
func (s *Streams) lockDirectory() error {
	c := &s.config
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return &job.Error{Kind: job.ReadOnly, Op: "stream.open",
			Msg: "the directory of the streams is not writable", Err: err}
	}
	unlock, err := disk.Lock(filepath.Join(c.Dir, "lock"))
	if err != nil {
		return err
	}
	s.unlock = unlock
	return nil
}

// startEmbedded starts the server in the process.
func (s *Streams) startEmbedded() error {
	c := &s.config
	options, err := c.serverOptions()
	if err != nil {
		return err
	}
	lifeCtx, end := context.WithCancel(context.Background())
	s.embedded = &embedded{options: options, log: c.Log, monitor: c.Monitor,
		writeFailed: make(chan struct{}, 1), ctx: lifeCtx, close: end}
	if err := s.embedded.start(); err != nil {
		return err
	}
	s.embedded.wg.Go(s.embedded.repair)
	return nil
}

// serverOptions configures the server. With SyncAlways, acknowledged messages are on the disk.
func (c *Config) serverOptions() (*server.Options, error) {
	options := &server.Options{
		ServerName:             c.Node,
		DontListen:             c.Listen == "",
		Authorization:          c.Token,
		JetStream:              true,
		StoreDir:               c.Dir,
		SyncAlways:             true,
		NoSigs:                 true,
		NoLog:                  true,
		DisableJetStreamBanner: true,
	}
	if c.Listen == "" {
		return options, nil
	}
	host, port, err := net.SplitHostPort(c.Listen)
	if err != nil {
		return nil, &job.Error{Kind: job.Invalid, Op: "stream.open",
			Msg: "stream.listen is not an address", Err: err}
	}
	options.Host = host
	options.Port, _ = strconv.Atoi(port)
	if options.Port == 0 {
		options.Port = server.RANDOM_PORT
	}
	return options, nil
}

// embedded is the server in the process. A NATS server that could not write, for example because
// the disk was full, refuses every message until it is restarted. repair restarts it as soon as the
// disk can be written to again:
//
//	running ──write error──> stopped ──disk writable──> running
//	                          │     ▲
//	                          └─────┘ checked every repairInterval
type embedded struct {
	options     *server.Options
	log         *slog.Logger
	monitor     *outage.Monitor
	writeFailed chan struct{}   // has an element when the server cannot write
	ctx         context.Context // ends at shutdown
	close       context.CancelFunc
	wg          sync.WaitGroup

	mu      sync.Mutex
	running *server.Server // nil during a restart
	address string
}

// InProcessConn implements nats.InProcessConnProvider: a client that reconnects reaches the server
// that is running then.
func (e *embedded) InProcessConn() (net.Conn, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.running == nil {
		return nil, errUnavailable
	}
	return e.running.InProcessConn()
}

// start starts a server and waits until it accepts connections or has logged why it cannot. It is
// called by startEmbedded and again by repair.
func (e *embedded) start() error {
	options := *e.options // the server writes to them
	s, err := server.NewServer(&options)
	if err != nil {
		return &job.Error{Kind: job.Internal, Op: "stream.open",
			Msg: "the embedded server of the streams cannot be configured", Err: err}
	}
	l := &logger{Logger: e.log, writeFailed: e.writeFailed, monitor: e.monitor}
	s.SetLoggerV2(l, false, false, false)
	s.Start()
	for range 600 { // at most a minute
		if s.ReadyForConnections(100 * time.Millisecond) {
			e.mu.Lock()
			defer e.mu.Unlock()
			e.running = s
			if !options.DontListen {
				e.address = s.Addr().String()
				e.options.Port = s.Addr().(*net.TCPAddr).Port // a restart keeps the port
			}
			return nil
		}
		if l.startFailure() != "" {
			break
		}
	}
	shutdownServer(s)
	return &job.Error{Kind: job.Unavailable, Op: "stream.open",
		Msg: "the embedded server of the streams did not start" + l.startFailure()}
}

// repairInterval is the time between two checks of a disk that cannot be written to.
const repairInterval = time.Second

// repair restarts the server after write errors, until shutdown.
func (e *embedded) repair() {
	for {
		select {
		case <-e.ctx.Done():
			return
		case <-e.writeFailed:
		}
		e.stop()
		for e.checkWritable() != nil || e.start() != nil {
			if !clock.Sleep(e.ctx, repairInterval) {
				return
			}
		}
		e.log.Debug("the server of the streams can write again and was restarted")
	}
}

// checkWritable checks that a megabyte can be written to the disk. The server is started again only
// after that: it would fail at its first message otherwise, and every failed start reads all files.
func (e *embedded) checkWritable() error {
	f, err := os.Create(filepath.Join(e.options.StoreDir, "probe"))
	if err != nil {
		return err
	}
	_, err = f.Write(make([]byte, 1<<20))
	return errors.Join(err, f.Sync(), f.Close(), os.Remove(f.Name()))
}

// stop stops the server and forgets the write errors until then.
func (e *embedded) stop() {
	e.mu.Lock()
	s := e.running
	e.running = nil
	e.mu.Unlock()
	shutdownServer(s)
	select {
	case <-e.writeFailed:
	default:
	}
}

// shutdown stops the server for good.
func (e *embedded) shutdown() {
	e.close()
	e.wg.Wait()
	e.stop()
}

// shutdownServer stops a server and waits until its files are closed; nil is a server that was
// never started.
func shutdownServer(s *server.Server) {
	if s != nil {
		s.Shutdown()
		s.WaitForShutdown()
	}
}

// Address returns where the embedded server listens, or "" when it does not.
func (s *Streams) Address() string {
	if s.config.URL != "" || s.config.Listen == "" {
		return ""
	}
	s.embedded.mu.Lock()
	defer s.embedded.mu.Unlock()
	return s.embedded.address
}

// logger receives the log of the embedded server. Its notices are logged at debug level, and its
// write errors start a repair.
type logger struct {
	*slog.Logger
	writeFailed chan<- struct{}
	monitor     *outage.Monitor
	startError  atomic.Pointer[string] // why the server cannot start
}

// startFailure returns the reason why the server could not start, as the end of a sentence; "" if
// it gave none.
func (l *logger) startFailure() string {
	if last := l.startError.Load(); last != nil {
		return ": " + *last
	}
	return ""
}

// Errorf implements server.Logger. The server reports nowhere else that it cannot write.
func (l *logger) Errorf(format string, v ...any) {
	if strings.Contains(strings.ToLower(format), "critical write error") {
		select {
		case l.writeFailed <- struct{}{}:
		default:
		}
		l.monitor.Begin()(&job.Error{Kind: job.Unavailable, Op: "stream.write",
			Msg: fmt.Sprintf(format, v...)})
		return
	}
	l.Error("the server of the streams", "error_message", fmt.Sprintf(format, v...))
}

// Fatalf implements server.Logger. The server calls it when it cannot start; the logger of a server
// of its own would end the process.
func (l *logger) Fatalf(format string, v ...any) {
	text := fmt.Sprintf(format, v...)
	l.startError.Store(&text)
	l.Errorf("%s", text)
}

// Warnf implements server.Logger.
func (l *logger) Warnf(format string, v ...any) {
	l.Warn("the server of the streams", "error_message", fmt.Sprintf(format, v...))
}

// Noticef implements server.Logger. A notice of a server of its own is a detail of a part of a
// process.
func (l *logger) Noticef(format string, v ...any) { l.Debugf(format, v...) }

// Debugf implements server.Logger.
func (l *logger) Debugf(format string, v ...any) { l.Debug(fmt.Sprintf(format, v...)) }

// Tracef implements server.Logger and logs nothing: traces hold the messages of clients.
func (l *logger) Tracef(string, ...any) {}
