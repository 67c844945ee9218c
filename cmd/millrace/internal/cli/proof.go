package cli

import (
	"bufio"
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/account"
)

// The token of a folder is for the server of that folder. Its settings say where this one listens,
// but while it does not run anybody else may: so whoever takes a connection proves first that it
// has the secrets of the folder (AD-008), on every connection, as a command may outlive a server.

// Stored is the operator's token of a folder: that of its settings, else the one that a server of
// it has made.
type Stored struct {
	Token    string // "" for none
	Source   string // where it is
	ProofKey []byte // of account.Proof; nil without a pepper, by which nobody can prove anything
}

// proofTimeout bounds the answer to a challenge.
const proofTimeout = 5 * time.Second

// errUnproven is the error of a connection to somebody who does not prove to be the server of the
// folder.
var errUnproven = errors.New("the server does not prove to be that of the folder")

// folderDialer makes connections to the server of a folder alone.
type folderDialer struct {
	key   []byte // of proofs
	url   *url.URL
	trust *tls.Config
}

// newFolderDialer makes a dialer for the server at an address, and has a transport use it.
func newFolderDialer(transport *http.Transport, address string, key []byte) (*folderDialer, error) {
	at, err := url.Parse(strings.TrimRight(address, "/") + "/admin/v1/health")
	if err != nil {
		return nil, WithCode(ExitUsage, err)
	}
	d := &folderDialer{key: key, url: at, trust: transport.TLSClientConfig.Clone()}
	transport.Proxy, transport.ForceAttemptHTTP2 = nil, false
	transport.DialContext, transport.DialTLSContext = d.dial, d.dialTLS
	return d, nil
}

// try makes a connection. Its error is one of the server's identity; where none is reached, the
// calls that follow say so.
func (d *folderDialer) try(ctx context.Context) error {
	port := cmp.Or(d.url.Port(), map[string]string{"https": "443"}[d.url.Scheme], "80")
	address, dial := net.JoinHostPort(d.url.Hostname(), port), d.dial
	if d.url.Scheme == "https" {
		dial = d.dialTLS
	}
	conn, err := dial(ctx, "tcp", address)
	switch {
	case errors.Is(err, errUnproven):
		return err
	case err != nil:
		return nil
	}
	return conn.Close()
}

// dial connects without TLS.
func (d *folderDialer) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	return d.checked(ctx, conn, err)
}

// dialTLS connects with TLS.
func (d *folderDialer) dialTLS(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (&tls.Dialer{Config: d.trust}).DialContext(ctx, network, address)
	return d.checked(ctx, conn, err)
}

// checked returns a connection if its other end has proven to be the server of the folder.
func (d *folderDialer) checked(ctx context.Context, conn net.Conn, err error) (net.Conn, error) {
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, proofTimeout)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	if err := d.challenge(conn); err != nil {
		conn.Close()
		return nil, err
	}
	if !stop() {
		return nil, context.Cause(ctx) // the connection is closed
	}
	return conn, nil
}

// challenge asks the other end of a connection for a proof. A whole answer without one is an answer
// of somebody else; all other errors are those of a connection.
func (d *folderDialer) challenge(conn net.Conn) error {
	challenge := rand.Text()
	at, err := netip.ParseAddrPort(conn.RemoteAddr().String())
	if err != nil {
		return err
	}
	req := &http.Request{Method: http.MethodGet, URL: d.url, Host: d.url.Host,
		Header: http.Header{}}
	req.Header.Set("User-Agent", UserAgent())
	req.Header.Set(account.ChallengeHeader, challenge)
	if err := req.Write(conn); err != nil {
		return err
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	given, want := resp.Header.Get(account.ProofHeader), account.Proof(d.key, challenge, at)
	if d.key == nil || !hmac.Equal([]byte(given), []byte(want)) {
		return errUnproven
	}
	if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.Close {
		return cmp.Or(err, net.ErrClosed)
	}
	return nil
}
