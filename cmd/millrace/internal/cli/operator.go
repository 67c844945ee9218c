package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/client"
)

// Operator connects commands for operators to a server: the one that flags or a variable name, else
// that of the default profile, else the one that the settings of this machine describe, whose token
// is read where that server keeps it.
type Operator struct {
	// Local is the server of the settings.
	Local LocalServer
	// Retry is how calls are repeated; the zero value is the default of the SDK.
	Retry client.Retry

	remote  RemoteFlags
	profile string
	token   string
	actor   string
	// address is that of the server, and source says in errors where it was written.
	address, source string
	// tokenSource says in errors where the token came from; "" where none was found.
	tokenSource string
	// stored is the token where it is that of the folder: it is for no other server.
	stored Stored
}

// LocalServer finds the server that the settings of this machine describe.
type LocalServer interface {
	// Register adds the flags that name the settings.
	Register(c *cobra.Command)
	// Find returns the address, and how the operator's token is read.
	Find(p Process, c *cobra.Command) (address string, token func() (Stored, error), err error)
}

// Register adds the flags to a command.
func (o *Operator) Register(c *cobra.Command) {
	o.remote.RegisterServer(c)
	o.Local.Register(c)
	c.Flags().Lookup("server").Usage = "address of the server (" + EnvServer +
		", else that of the settings)"
	c.Flags().StringVar(&o.profile, "profile", "",
		"`name` of a server that 'millrace login' has kept (else \"default\", if there is one)")
	c.MarkFlagsMutuallyExclusive("profile", "server")
	c.Flags().StringVar(&o.token, "token", "", "token of the operator ("+EnvOperatorToken+
		", which others cannot see, else that of the profile; on the server's machine that of its "+
		"data directory)")
	c.Flags().StringVar(&o.actor, "actor", "", "`name` that the audit has for who did it")
}

// Connect returns the admin API of the server and the URL of the server.
func (o *Operator) Connect(p Process, c *cobra.Command) (*client.Admin, string, error) {
	address, token, err := o.find(p, c)
	if err != nil {
		return nil, "", err
	}
	o.address = address
	if token == "" {
		o.tokenSource = ""
	}
	o.remote.Retry = o.Retry
	transport, err := o.remote.Transport(p)
	if err != nil {
		return nil, "", err
	}
	if o.stored.Token != "" {
		dialer, err := newFolderDialer(transport, address, o.stored.ProofKey)
		if err != nil {
			return nil, "", err
		}
		if err := dialer.try(c.Context()); err != nil {
			return nil, "", o.unprovenError()
		}
	}
	server, err := o.remote.admin(transport, address, token)
	if err != nil {
		return nil, "", err
	}
	return server.WithActor(o.actor), address, nil
}

// find returns address and token. A flag wins over the environment, and that over a profile. The
// settings are read only if something is missing without them. Their token goes to a server of this
// machine alone that proves to be theirs, and MILLRACE_TOKEN, which may be that of a contract, only
// where there is no other.
func (o *Operator) find(p Process, c *cobra.Command) (address, token string, err error) {
	given := o.remote.ServerSetting(p) != ""
	o.source = "--server or " + EnvServer
	profile, found, err := o.findProfile(given, p, c)
	if err != nil {
		return "", "", err
	}
	if found {
		if !given {
			o.source = "profile " + cmp.Or(o.profile, DefaultProfile)
		}
		o.remote.cacert = cmp.Or(o.remote.cacert, profile.CACert)
		if token = o.givenToken(p); token == "" {
			token, o.tokenSource = profile.Token, "the profile of "+profile.Server
		}
		return profile.Server, token, nil
	}
	address, token = o.remote.Address(p), o.givenToken(p)
	if given && (token != "" || !isLocal(address)) {
		return address, o.orContractToken(p, token), nil
	}
	local, stored, err := o.Local.Find(p, c)
	if err != nil {
		return "", "", err
	}
	if !given {
		address = local
		o.source = "the setting listen; --server or " + EnvServer + " names another"
	}
	if token == "" && isLocal(address) {
		if o.stored, err = stored(); err != nil {
			return "", "", err
		}
		token, o.tokenSource = o.stored.Token, o.stored.Source
	}
	return address, o.orContractToken(p, token), nil
}

// givenToken returns the token of the flag, else that of the environment.
func (o *Operator) givenToken(p Process) string {
	if o.token != "" {
		o.tokenSource = "--token"
		return o.token
	}
	o.tokenSource = EnvOperatorToken
	return p.Env(EnvOperatorToken)
}

// orContractToken returns a token or, where there is none, the one of the contracts.
func (o *Operator) orContractToken(p Process, token string) string {
	if token == "" {
		o.tokenSource = EnvToken
	}
	return cmp.Or(token, p.Env(EnvToken))
}

// findProfile returns the profile that --profile names, else one of the server that is given, else
// the default one. Settings that flags name go before both.
func (o *Operator) findProfile(serverGiven bool, p Process, c *cobra.Command) (f Profile,
	found bool, err error) {
	if o.profile != "" {
		f, err = FindProfile(o.profile)
		return f, err == nil, err
	}
	if c.Flags().Changed("config") || c.Flags().Changed("set") {
		return f, false, nil
	}
	all, err := readProfiles()
	if err != nil {
		return f, false, err
	}
	if serverGiven {
		f, found = profileOf(all, o.remote.Address(p))
		return f, found, nil
	}
	f, found = all[DefaultProfile]
	return f, found, nil
}

// profileOf returns the first profile, by name, of the server with a URL.
func profileOf(all map[string]Profile, address string) (f Profile, found bool) {
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if all[name].Server == strings.TrimSuffix(address, "/") {
			return all[name], true
		}
	}
	return f, false
}

// isLocal reports whether the host of a URL is this machine.
func isLocal(address string) bool {
	u, err := url.Parse(address)
	if err != nil {
		return false
	}
	host := u.Hostname()
	at, err := netip.ParseAddr(host)
	if err != nil {
		return host == "localhost"
	}
	return at.IsLoopback()
}

// URLOf returns the URL by which a server is reached from its own machine that listens on an
// address.
func URLOf(listen string, tls bool) string {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return "http://" + listen
	}
	at, _ := netip.ParseAddr(host) // a name is no address
	if host == "" || at.IsUnspecified() {
		host = "127.0.0.1"
	}
	scheme := "http"
	if tls {
		scheme = "https"
	}
	return scheme + "://" + net.JoinHostPort(host, port)
}

// Error gives the error of a call to the admin API its exit code. An error that has one keeps it.
func (o *Operator) Error(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, errUnproven):
		return o.unprovenError()
	case !isUnauthorized(err):
		return operatorError(ctx, err, o.source)
	case o.tokenSource == "":
		return WithCode(ExitUnauthorized, fmt.Errorf("the server at %s needs the operator's token, "+
			"which 'millrace operator token' prints on its machine, in the folder in which it "+
			"was started: go there, set %s or --token, or keep it with 'millrace login'", o.address,
			EnvOperatorToken))
	}
	return WithCode(ExitUnauthorized, fmt.Errorf("the server at %s refuses the operator's token "+
		"of %s: another server may listen there. 'millrace operator token' prints the token of a "+
		"server in the folder in which it was started; --token or %s gives it, --server another "+
		"address: %w", o.address, o.tokenSource, EnvOperatorToken, err))
}

// unprovenError is the error of a server that was not sent the token of the folder.
func (o *Operator) unprovenError() error {
	return WithCode(ExitUnauthorized, fmt.Errorf("the server at %s does not prove to be the one that "+
		"the operator's token of %s is for, and was not sent it: another program listens there, or a "+
		"server of an earlier version or with another pepper. --server or %s names another address, "+
		"and --token or %s gives a token to whoever is there", o.address, o.tokenSource, EnvServer,
		EnvOperatorToken))
}

// isUnauthorized reports whether the server has refused the token, or the lack of one.
func isUnauthorized(err error) bool {
	var e *client.Error
	return errors.As(err, &e) && e.Status == http.StatusUnauthorized
}

// OperatorError is like [Operator.Error] for a server that flags or a variable have named.
func OperatorError(ctx context.Context, err error) error {
	return operatorError(ctx, err, "--server or "+EnvServer)
}

// operatorError gives an error its exit code; source says where the server's address was written.
func operatorError(ctx context.Context, err error, source string) error {
	var e *client.Error
	var coded *ExitError
	switch {
	case errors.As(err, &coded):
		return err
	case isUnauthorized(err):
		return WithCode(ExitUnauthorized, fmt.Errorf(
			"the server refuses the operator's token (--token or %s): %w", EnvOperatorToken, err))
	case errors.As(err, &e) && e.Status == http.StatusForbidden:
		return WithCode(ExitUnauthorized, err)
	}
	return remoteError(ctx, err, source)
}
