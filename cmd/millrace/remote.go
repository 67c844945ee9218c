package main

import (
	"cmp"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/client"
)

const defaultServer = "http://127.0.0.1:8080"

// remoteFlags are the flags of commands that talk to a server.
type remoteFlags struct {
	server string
	token  string
}

func (f *remoteFlags) register(c *cobra.Command) {
	c.Flags().StringVar(&f.server, "server", "", "address of the server (MILLRACE_SERVER, else "+defaultServer+")")
	c.Flags().StringVar(&f.token, "token", "", "token of the contract (MILLRACE_TOKEN, which others cannot see)")
}

func (f *remoteFlags) address(p process) string {
	return cmp.Or(f.server, p.env("MILLRACE_SERVER"), defaultServer)
}

func (f *remoteFlags) bearer(p process) string { return cmp.Or(f.token, p.env("MILLRACE_TOKEN")) }

// client connects as the flags and the environment say; transport may be nil.
func (f *remoteFlags) client(p process, transport http.RoundTripper) (*client.Client, error) {
	cfg := client.Config{BaseURL: f.address(p), Token: f.bearer(p), UserAgent: "millrace/" + readBuild().Version}
	if transport != nil {
		cfg.HTTPClient = &http.Client{Transport: transport}
	}
	c, err := client.New(cfg)
	return c, withCode(exitUsage, err)
}
