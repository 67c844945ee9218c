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
)

// httpListener is one listener and its server.
type httpListener struct {
	address  string // as it was set
	handlers []string
	useTLS   bool
	server   *http.Server
	listener net.Listener
}

func newListener(address string, handlers []httpapi.PrefixHandler, proxies []netip.Prefix,
	credentials *tls.Config, log *slog.Logger) *httpListener {
	handler := httpapi.TrustProxies(proxies, httpapi.NewMux(handlers...))
	d := &httpListener{address: address, useTLS: credentials != nil,
		server: httpapi.NewServer(handler, log)}
	d.server.TLSConfig = credentials
	for _, m := range handlers {
		d.handlers = append(d.handlers, m.Name)
	}
	return d
}

// loadTLS reads the certificate of all listeners; nil when there is none.
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

// Listen opens every listener, or none. Its error is a sentence for whoever starts the node.
func (s *Server) Listen(ctx context.Context) error {
	for _, d := range s.listeners {
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", d.address)
		if err != nil {
			s.closeListeners()
			return listenError("listen", d.address, err)
		}
		d.listener = httpapi.LimitConnections(l)
	}
	for _, d := range s.listeners {
		s.log.Info("listening", "address", d.url(), "serves", d.handlers, "version",
			s.config.Version, "node", s.config.Node)
	}
	return nil
}

// CheckListen finds out whether the addresses of the settings are free, all at the same time, and
// their certificate is one, so that a node that cannot start finds it out before it makes anything.
// Listen has the last word.
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

func (s *Server) closeListeners() {
	for _, d := range s.listeners {
		if d.listener != nil {
			d.listener.Close()
			d.listener = nil
		}
	}
}

func listenError(setting, address string, err error) error {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("the address %s is in use by another process or setting; set %s to a "+
			"free one (port 0 picks one)", address, setting)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return fmt.Errorf("the address %s (%s) is not one of this machine's", address, setting)
	case errors.Is(err, syscall.EACCES):
		return fmt.Errorf("this user may not listen on %s (%s)", address, setting)
	}
	return fmt.Errorf("cannot listen on %s (%s): %w", address, setting, err)
}

// URLs are where the node is served: the common listener first, then those of rooms of their own.
// Ports are the real ones.
func (s *Server) URLs() []string {
	urls := make([]string, len(s.listeners))
	for i, d := range s.listeners {
		urls[i] = d.url()
	}
	return urls
}

func (d *httpListener) url() string {
	scheme := "http"
	if d.useTLS {
		scheme = "https"
	}
	return scheme + "://" + d.listener.Addr().String()
}

// serve answers until the server is shut down or its listener fails.
func (d *httpListener) serve() error {
	var err error
	if d.useTLS {
		err = d.server.ServeTLS(d.listener, "", "")
	} else {
		err = d.server.Serve(d.listener)
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("the listener on %s failed: %w", d.address, err)
}
