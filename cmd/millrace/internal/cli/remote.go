package cli

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

// DefaultServer is the address of a server with default settings.
const DefaultServer = "http://127.0.0.1:8080"

// The environment variables of commands that talk to a server.
const (
	EnvServer        = "MILLRACE_SERVER"
	EnvToken         = "MILLRACE_TOKEN"
	EnvCACert        = "MILLRACE_CACERT"
	EnvOperatorToken = "MILLRACE_OPERATOR_TOKEN"
)

// RemoteFlags are the flags of commands that talk to a server.
type RemoteFlags struct {
	Server string
	// Retry is how calls are repeated; the zero value is the default of the SDK.
	Retry  client.Retry
	token  string
	cacert string
}

// Register adds all flags to the command.
func (f *RemoteFlags) Register(c *cobra.Command) {
	f.RegisterServer(c)
	f.RegisterProfile(c)
	c.Flags().StringVar(&f.token, "token", "",
		"token of the contract ("+EnvToken+", which others cannot see)")
}

// RegisterServer leaves out the token.
func (f *RemoteFlags) RegisterServer(c *cobra.Command) {
	c.Flags().StringVar(&f.Server, "server", "",
		"address of the server ("+EnvServer+", else that of the settings of this folder, as "+
			DefaultServer+")")
	c.Flags().StringVar(&f.cacert, "cacert", "",
		"`file` (PEM) of certificates to trust besides those of the system ("+EnvCACert+")")
}

// RegisterProfile adds a flag that names the server by a profile. The token of a profile belongs to
// the operator, and is not for these commands.
func (f *RemoteFlags) RegisterProfile(c *cobra.Command) {
	name := c.Flags().String("profile", "",
		"`name` of a server that 'millrace login' has kept; its token is not used")
	c.MarkFlagsMutuallyExclusive("profile", "server")
	_ = c.RegisterFlagCompletionFunc("profile", completeProfiles)
	c.PreRunE = func(*cobra.Command, []string) error {
		if *name == "" {
			return nil
		}
		profile, err := FindProfile(*name)
		f.Server, f.cacert = profile.Server, cmp.Or(f.cacert, profile.CACert)
		return err
	}
}

// ServerSetting is the server that flag or environment name, empty for none.
func (f *RemoteFlags) ServerSetting(p Process) string { return cmp.Or(f.Server, p.Env(EnvServer)) }

// Address returns the URL of the server: that of flag or environment, else the one that listens by
// the settings of this folder. A host and port without a scheme is one of HTTP.
func (f *RemoteFlags) Address(p Process) string {
	address := f.ServerSetting(p)
	if address == "" && p.SettingsServer != nil {
		address = p.SettingsServer(p)
	}
	address = cmp.Or(address, DefaultServer)
	_, _, err := net.SplitHostPort(address)
	if err != nil || strings.Contains(address, "/") {
		return address
	}
	return "http://" + address
}

// BearerToken returns the token of the flag, else that of the environment, empty for none.
func (f *RemoteFlags) BearerToken(p Process) string { return cmp.Or(f.token, p.Env(EnvToken)) }

// HasTokenFlag reports whether the flag gives a token.
func (f *RemoteFlags) HasTokenFlag() bool { return f.token != "" }

// Client connects as the flags and the environment say; a nil transport is the usual one.
func (f *RemoteFlags) Client(p Process, transport http.RoundTripper) (*client.Client, error) {
	if transport == nil {
		defaultTransport, err := f.Transport(p)
		if err != nil {
			return nil, err
		}
		transport = defaultTransport
	}
	c, err := client.New(client.Config{BaseURL: f.Address(p), Token: f.BearerToken(p),
		UserAgent:  UserAgent(),
		Retry:      f.Retry,
		HTTPClient: &http.Client{Transport: transport}})
	return c, WithCode(ExitUsage, err)
}

// UserAgent returns the User-Agent of all requests that this binary sends.
func UserAgent() string {
	return "millrace/" + strings.ReplaceAll(ReadBuildInfo().Version, " ", "-")
}

// admin returns the admin API of a server for a token.
func (f *RemoteFlags) admin(transport *http.Transport, address, token string) (*client.Admin,
	error) {
	made, err := client.New(client.Config{BaseURL: address, Token: token, UserAgent: UserAgent(),
		Retry: f.Retry, HTTPClient: &http.Client{Transport: transport}})
	if err != nil {
		return nil, WithCode(ExitUsage, err)
	}
	return made.Admin(), nil
}

// CACert returns the file of certificates to trust, empty for none.
func (f *RemoteFlags) CACert(p Process) string { return cmp.Or(f.cacert, p.Env(EnvCACert)) }

// Transport is what requests to the server go through.
func (f *RemoteFlags) Transport(p Process) (*http.Transport, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 64
	trust, err := f.TLSConfig(p)
	transport.TLSClientConfig = trust
	return transport, err
}

// TLSConfig says which certificates are trusted; nil means those of the system.
func (f *RemoteFlags) TLSConfig(p Process) (*tls.Config, error) {
	path := f.CACert(p)
	if path == "" {
		return nil, nil
	}
	trusted, err := certPoolWith(path)
	if err != nil {
		return nil, WithCode(ExitUsage, fmt.Errorf("--cacert: %w", err))
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
