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

// startEmbedded starts the server in the process.
func (s *Streams) startEmbedded() error {
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
	options, err := c.serverOptions()
	if err != nil {
		return err
	}
	lifeCtx, close := context.WithCancel(context.Background())
	s.embedded = &embedded{options: options, log: c.Log, part: c.Part,
		writeFailed: make(chan struct{}, 1), ctx: lifeCtx, close: close}
	if err := s.embedded.start(); err != nil {
		return err
	}
	s.embedded.wg.Go(s.embedded.repair)
	return nil
}

// serverOptions is how the server is set up. SyncAlways: what it acknowledges is on the disk.
func (c *Config) serverOptions() (*server.Options, error) {
	options := &server.Options{ServerName: c.Node, DontListen: c.Listen == "",
		Authorization: c.Token, JetStream: true, StoreDir: c.Dir,
		SyncAlways: true, NoSigs: true, NoLog: true, DisableJetStreamBanner: true}
	if c.Listen == "" {
		return options, nil
	}
	host, port, err := net.SplitHostPort(c.Listen)
	if options.Port, _ = strconv.Atoi(port); err != nil {
		return nil, &job.Error{Kind: job.Invalid, Op: "stream.open",
			Msg: "stream.listen is no address", Err: err}
	}
	if options.Host = host; options.Port == 0 {
		options.Port = server.RANDOM_PORT
	}
	return options, nil
}

// embedded is the server in the process. One that could not write, as when the disk was full,
// refuses every message until it is started anew; here that is done as soon as the disk takes
// something again.
type embedded struct {
	options     *server.Options
	log         *slog.Logger
	part        *outage.Part
	writeFailed chan struct{}   // has one when the server cannot write
	ctx         context.Context // ends when it is closed
	close       context.CancelFunc
	wg          sync.WaitGroup

	mu      sync.Mutex
	running *server.Server // nil while it is started anew
	address string
}

// InProcessConn implements nats.InProcessConnProvider: whoever connects again reaches the server
// that runs then.
func (e *embedded) InProcessConn() (net.Conn, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.running == nil {
		return nil, errUnavailable
	}
	return e.running.InProcessConn()
}

func (e *embedded) start() error {
	options := *e.options // the server writes to them
	s, err := server.NewServer(&options)
	if err != nil {
		return &job.Error{Kind: job.Internal, Op: "stream.open",
			Msg: "the embedded server of the streams cannot be made", Err: err}
	}
	l := &logger{Logger: e.log, writeFailed: e.writeFailed, part: e.part}
	s.SetLoggerV2(l, false, false, false)
	s.Start()
	for range 600 { // a minute, but not after it has said why it cannot
		if s.ReadyForConnections(100 * time.Millisecond) {
			e.mu.Lock()
			defer e.mu.Unlock()
			if e.running = s; !options.DontListen {
				e.address = s.Addr().String()
				e.options.Port = s.Addr().(*net.TCPAddr).Port // it keeps the one it has found
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

// repairInterval is between two looks at a disk that takes nothing.
const repairInterval = time.Second

// repair starts the server anew when it cannot write, until it is closed.
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
		e.log.Debug("the server of the streams can write again and is started anew")
	}
}

// checkWritable tells whether the disk takes something.
func (e *embedded) checkWritable() error {
	f, err := os.Create(filepath.Join(e.options.StoreDir, "probe"))
	if err != nil {
		return err
	}
	_, err = f.Write(make([]byte, 1<<20))
	return errors.Join(err, f.Sync(), f.Close(), os.Remove(f.Name()))
}

// stop ends the server; what broke until then is the past.
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

func (e *embedded) shutdown() {
	e.close()
	e.wg.Wait()
	e.stop()
}

func shutdownServer(s *server.Server) {
	if s != nil {
		s.Shutdown()
		s.WaitForShutdown()
	}
}

// Address is where the embedded server listens; empty when it does not.
func (s *Streams) Address() string {
	if s.embedded == nil || s.config.Listen == "" {
		return ""
	}
	s.embedded.mu.Lock()
	defer s.embedded.mu.Unlock()
	return s.embedded.address
}

// logger writes what the embedded server has to say. Its notices are for those who run one by hand.
type logger struct {
	*slog.Logger
	writeFailed chan<- struct{}
	part        *outage.Part
	startError  atomic.Pointer[string] // why it does not start
}

func (l *logger) startFailure() string {
	if last := l.startError.Load(); last != nil {
		return ": " + *last
	}
	return ""
}

// Errorf implements server.Logger. That a stream or consumer cannot write is told nowhere else.
func (l *logger) Errorf(format string, v ...any) {
	if strings.Contains(strings.ToLower(format), "critical write error") {
		select {
		case l.writeFailed <- struct{}{}:
		default:
		}
		l.part.Begin()(&job.Error{Kind: job.Unavailable, Op: "stream.write",
			Msg: fmt.Sprintf(format, v...)})
		return
	}
	l.Error("the server of the streams", "error_message", fmt.Sprintf(format, v...))
}

func (l *logger) Fatalf(format string, v ...any) {
	text := fmt.Sprintf(format, v...)
	l.startError.Store(&text)
	l.Errorf("%s", text)
}

func (l *logger) Warnf(format string, v ...any) {
	l.Warn("the server of the streams", "error_message", fmt.Sprintf(format, v...))
}

func (l *logger) Noticef(format string, v ...any) { l.Debugf(format, v...) }

func (l *logger) Debugf(format string, v ...any) { l.Debug(fmt.Sprintf(format, v...)) }

func (l *logger) Tracef(string, ...any) {}
