package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"syscall"

	"github.com/millrace/millrace/internal/config"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/job"
)

// httpListener is one listening address and the server on it. listener is nil until Listen.
type httpListener struct {
	address  string // as configured; its port may be 0
	useTLS   bool
	server   *http.Server
	listener net.Listener
}

// newListener opens a listener for the handlers that share an address.
func newListener(address string, handlers []httpapi.PrefixHandler, proxies []netip.Prefix,
	credentials *tls.Config, log *slog.Logger) *httpListener {
	handler := httpapi.TrustProxies(proxies, httpapi.NewMux(handlers...))
	l := &httpListener{address: address, useTLS: credentials != nil,
		server: httpapi.NewServer(handler, log)}
	l.server.TLSConfig = credentials
	return l
}

// loadTLS reads the certificate of all listeners. It returns nil when TLS is not configured.
func loadTLS(t config.TLS) (*tls.Config, error) {
	if !t.Enabled() {
		return nil, nil
	}
	pair, err := tls.LoadX509KeyPair(t.Cert, t.Key)
	if err != nil {
		return nil, fmt.Errorf("the certificate (tls.cert, tls.key) cannot be used: %w", err)
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}}, nil
}

// Listen opens all listeners, or none. Its errors name the setting to change, since the operator
// who starts the node reads them.
func (s *Server) Listen(ctx context.Context) error {
	for _, l := range s.listeners {
		opened, err := (&net.ListenConfig{}).Listen(ctx, "tcp", l.address)
		if err != nil {
			s.closeListeners()
			return listenError("listen", l.address, err)
		}
		l.listener = httpapi.LimitConnections(l.server, opened, len(s.listeners))
	}
	return nil
}

// CheckListen checks that all addresses of the settings can be listened on at the same time and
// that the certificate can be loaded, so that a node that cannot start fails before it creates
// files. Listen may still fail later, since the addresses are free again in between.
func CheckListen(ctx context.Context, s *config.Settings) error {
	if _, err := loadTLS(s.TLS); err != nil {
		return err
	}
	for _, addr := range s.Listeners() {
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr.Address)
		if err != nil {
			return listenError(addr.Setting, addr.Address, err)
		}
		defer l.Close()
	}
	return nil
}

// closeListeners closes the listeners that were opened, after one of them failed.
func (s *Server) closeListeners() {
	for _, l := range s.listeners {
		if l.listener != nil {
			l.listener.Close()
			l.listener = nil
		}
	}
}

// listenError explains a failed listen by the setting to change.
func listenError(setting, address string, err error) error {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return &job.Error{Kind: job.Conflict, Msg: fmt.Sprintf("the address %s is in use "+
			"by another process or setting; set %s to a free one (port 0 picks one)", address,
			setting)}
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return fmt.Errorf("the address %s (%s) is not one of this machine's", address, setting)
	case errors.Is(err, syscall.EACCES):
		return fmt.Errorf("this user may not listen on %s (%s)", address, setting)
	}
	return fmt.Errorf("cannot listen on %s (%s): %w", address, setting, err)
}

// URLs returns where the node is served, the common listener first. Ports are those that were
// opened, also where the setting says 0.
func (s *Server) URLs() []string {
	urls := make([]string, len(s.listeners))
	for i, l := range s.listeners {
		urls[i] = l.url()
	}
	return urls
}

// url is the address that a client on this machine can use.
func (l *httpListener) url() string {
	scheme := "http"
	if l.useTLS {
		scheme = "https"
	}
	return scheme + "://" + l.listener.Addr().String()
}

// serve accepts connections until the server is shut down or its listener fails.
func (l *httpListener) serve() error {
	var err error
	if l.useTLS {
		err = l.server.ServeTLS(l.listener, "", "")
	} else {
		err = l.server.Serve(l.listener)
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("the listener on %s failed: %w", l.address, err)
}
