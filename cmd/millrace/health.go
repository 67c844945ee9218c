package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/cmd/millrace/internal/cli"
)

// The command asks a server as a load balancer does, and answers by its exit code. It prints what
// the server says, which names the part that fails.

// healthFlags are the flags of `millrace health`.
type healthFlags struct {
	settings settingsFlags
	remote   cli.RemoteFlags
	live     bool
	timeout  time.Duration
}

// healthCommand is `millrace health`: the health check of containers that have no other program.
func healthCommand(p cli.Process) *cobra.Command {
	var f healthFlags
	c := &cobra.Command{
		Use:   "health",
		Short: "Ask a server whether it is ready",
		Long: `Ask a server whether it is ready, and print the state of each part. Without
--server it is the one that the settings of this machine describe. Exit code 0 means
that it is ready, 1 that it is not, 4 that it does not answer. No token is needed.`,
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error { return f.run(p, c) },
	}
	f.settings.register(c)
	f.remote.RegisterServer(c)
	f.remote.RegisterProfile(c)
	c.Flags().Lookup("server").Usage = "address of the server (" + cli.EnvServer +
		", else that of the settings)"
	c.Flags().BoolVar(&f.live, "live", false, "ask only whether the process serves")
	c.Flags().DurationVar(&f.timeout, "timeout", 5*time.Second, "how long the answer may take")
	return c
}

// run asks the server and prints its answer.
func (f *healthFlags) run(p cli.Process, c *cobra.Command) error {
	address, transport, err := f.server(p, c)
	if err != nil {
		return err
	}
	path := "/health/ready"
	if f.live {
		path = "/health/live"
	}
	ctx, cancel := context.WithTimeout(c.Context(), f.timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet,
		strings.TrimRight(address, "/")+path, http.NoBody)
	if err != nil {
		return cli.WithCode(cli.ExitUsage, err)
	}
	req.Header.Set("User-Agent", cli.UserAgent())
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return cli.WithCode(cli.ExitServer, cli.UnreachableError(err))
	}
	defer resp.Body.Close()
	if _, err := io.Copy(p.Stdout, io.LimitReader(resp.Body, maxHealthText)); err != nil {
		return cli.WithCode(cli.ExitServer, cli.UnreachableError(err))
	}
	if resp.StatusCode != http.StatusOK {
		return cli.FailedError("the server is not ready: %s answers %s", address+path, resp.Status)
	}
	return nil
}

// maxHealthText bounds the text that is printed of an answer, which may be of another program.
const maxHealthText = 64 << 10

// server returns the address that was named, else that of the settings. The server of the settings
// is on this machine and its certificate need not name the address that is asked, so it is not
// verified: nothing secret is sent, and nothing but the state is read.
func (f *healthFlags) server(p cli.Process, c *cobra.Command) (string, *http.Transport, error) {
	transport, err := f.remote.Transport(p)
	if err != nil || f.remote.ServerSetting(p) != "" {
		return f.remote.Address(p), transport, err
	}
	s, err := f.settings.load(p, c)
	if err != nil {
		return "", nil, err
	}
	transport.TLSClientConfig = cmp.Or(transport.TLSClientConfig, &tls.Config{})
	transport.TLSClientConfig.InsecureSkipVerify = true
	return cli.URLOf(s.Listen, s.TLS.Enabled()), transport, nil
}
