package main

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/client"
)

const defaultServer = "http://127.0.0.1:8080"

// The environment variables of commands that talk to a server.
const (
	envServer        = "MILLRACE_SERVER"
	envToken         = "MILLRACE_TOKEN"
	envCACert        = "MILLRACE_CACERT"
	envOperatorToken = "MILLRACE_OPERATOR_TOKEN"
)

// remoteFlags are the flags of commands that talk to a server.
type remoteFlags struct {
	server string
	token  string
	cacert string
}

func (f *remoteFlags) register(c *cobra.Command) {
	f.registerServer(c)
	c.Flags().StringVar(&f.token, "token", "",
		"token of the contract ("+envToken+", which others cannot see)")
}

// registerServer leaves out the token.
func (f *remoteFlags) registerServer(c *cobra.Command) {
	c.Flags().StringVar(&f.server, "server", "",
		"address of the server ("+envServer+", else "+defaultServer+")")
	c.Flags().StringVar(&f.cacert, "cacert", "",
		"`file` (PEM) of certificates to trust beside those of the system ("+envCACert+")")
}

// serverSetting is the server that flag or environment name, empty for none.
func (f *remoteFlags) serverSetting(p process) string { return cmp.Or(f.server, p.env(envServer)) }

// checkClientAddress is the URL of the server. A host with a port alone is one of HTTP.
func (f *remoteFlags) address(p process) string {
	address := cmp.Or(f.serverSetting(p), defaultServer)
	_, _, err := net.SplitHostPort(address)
	if err != nil || strings.Contains(address, "/") {
		return address
	}
	return "http://" + address
}

func (f *remoteFlags) bearerToken(p process) string { return cmp.Or(f.token, p.env(envToken)) }

// client connects as the flags and the environment say; a nil transport is the usual one.
func (f *remoteFlags) client(p process, transport http.RoundTripper) (*client.Client, error) {
	if transport == nil {
		defaultTransport, err := f.transport(p)
		if err != nil {
			return nil, err
		}
		transport = defaultTransport
	}
	c, err := client.New(client.Config{BaseURL: f.address(p), Token: f.bearerToken(p),
		UserAgent:  userAgent(),
		HTTPClient: &http.Client{Transport: transport}})
	return c, withCode(exitUsage, err)
}

func userAgent() string { return "millrace/" + readBuildInfo().Version }

// transport is what requests to the server go through.
func (f *remoteFlags) transport(p process) (*http.Transport, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 64
	trust, err := f.tlsConfig(p)
	transport.TLSClientConfig = trust
	return transport, err
}

// tlsConfig says which certificates are trusted; nil means those of the system.
func (f *remoteFlags) tlsConfig(p process) (*tls.Config, error) {
	path := cmp.Or(f.cacert, p.env(envCACert))
	if path == "" {
		return nil, nil
	}
	trusted, err := certPoolWith(path)
	if err != nil {
		return nil, withCode(exitUsage, fmt.Errorf("--cacert: %w", err))
	}
	return &tls.Config{RootCAs: trusted}, nil
}

// certPoolWith returns the certificates of the system and those of a file.
func certPoolWith(path string) (*x509.CertPool, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	trusted, err := x509.SystemCertPool()
	if err != nil {
		trusted = x509.NewCertPool()
	}
	if !trusted.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("there is no certificate in %s (PEM)", path)
	}
	return trusted, nil
}
