package outside

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// NATSServer is a NATS server with JetStream on a port of its own. It writes what it acknowledges
// to disk first. So a message that was acknowledged must be there after Kill and Restart.
type NATSServer struct {
	URL string

	tb      testing.TB
	config  string
	process *process
}

// natsFile is the configuration of a server that is alone. Its directory is replaced.
const natsFile = "jetstream { store_dir: \"" + natsDir + "\", sync_interval: always }\n"

const natsDir = "/var/lib/nats"

// NewNATS starts a server that requires token unless that is empty, and ends it with the test.
func NewNATS(tb testing.TB, token string) *NATSServer {
	tb.Helper()
	return startNATS(tb, natsFile+authorization(token))
}

// authorization is the line of a configuration that asks for a token.
func authorization(token string) string {
	if token == "" {
		return ""
	}
	return "authorization { token: " + token + " }\n"
}

// NATSCluster is a cluster of three servers. Two of them are enough for every stream to go on; a
// test kills one to see what clients notice.
type NATSCluster struct {
	Servers []*NATSServer
	URL     string // the addresses of all servers
}

// NewNATSCluster starts the servers n0, n1 and n2, and ends them with the test. They may not have
// elected a leader yet when it returns.
func NewNATSCluster(tb testing.TB, token string) *NATSCluster {
	tb.Helper()
	return NewNATSClusterFromFile(tb, clusterFile(token, 3))
}

// clusterFile is the configuration of the server n0, with routes to n servers.
func clusterFile(token string, n int) string {
	var routes []string
	for i := range n {
		routes = append(routes, fmt.Sprintf("nats://n%d.internal:6222", i))
	}
	return natsFile + authorization(token) + "server_name: n0\n" +
		"cluster { name: test, listen: 0.0.0.0:6222, routes: [" + strings.Join(routes, ", ") + "] }\n"
}

// NewNATSClusterFromFile is NewNATSCluster with the configuration of the server n0 as a document
// has it. Names, addresses and the directory are replaced.
func NewNATSClusterFromFile(tb testing.TB, config string) *NATSCluster {
	tb.Helper()
	c := &NATSCluster{}
	routes := []string{freeAddress(tb), freeAddress(tb), freeAddress(tb)}
	for range routes {
		c.add(tb, config, routes)
	}
	return c
}

// NewNATSPair starts the servers n0 and n1 of a cluster, and returns how n2 joins them.
func NewNATSPair(tb testing.TB, token string) (pair *NATSCluster, join func()) {
	tb.Helper()
	pair = &NATSCluster{}
	routes := []string{freeAddress(tb), freeAddress(tb), freeAddress(tb)}
	for range 2 {
		pair.add(tb, clusterFile(token, 2), routes)
	}
	return pair, func() { pair.add(tb, clusterFile(token, 3), routes) }
}

// add starts the next server of a cluster, whose servers listen for each other on routes.
func (c *NATSCluster) add(tb testing.TB, config string, routes []string) {
	tb.Helper()
	i := len(c.Servers)
	replace := []string{"server_name: n0", fmt.Sprint("server_name: n", i), "0.0.0.0:6222", routes[i]}
	for k, route := range routes {
		replace = append(replace, fmt.Sprintf("n%d.internal:6222", k), route)
	}
	server := startNATS(tb, strings.NewReplacer(replace...).Replace(config))
	c.Servers = append(c.Servers, server)
	c.URL = strings.TrimPrefix(c.URL+","+server.URL, ",")
}

// startNATS starts a server with a configuration, in a directory of its own.
func startNATS(tb testing.TB, config string) *NATSServer {
	tb.Helper()
	dir := tb.TempDir()
	s := &NATSServer{tb: tb, config: filepath.Join(dir, "nats.conf")}
	config = strings.ReplaceAll(config, natsDir, filepath.Join(dir, "js"))
	if err := os.WriteFile(s.config, []byte(config), 0o600); err != nil {
		tb.Fatal(err)
	}
	s.start("-1")
	return s
}

// start starts the server on a port, -1 for any free one, and sets its URL from what it logs.
func (s *NATSServer) start(port string) {
	s.tb.Helper()
	var lines []string
	s.process, lines = startProcess(s.tb, "Server is ready",
		exec.Command(natsProgram().path(s.tb), "-c", s.config, "-a", "127.0.0.1", "-p", port))
	for _, line := range lines {
		if _, address, ok := strings.Cut(line, "Listening for client connections on "); ok {
			s.URL = "nats://" + address
		}
	}
}

// Kill ends the server as a crash does.
func (s *NATSServer) Kill() { s.process.kill() }

// Restart starts a killed server on the port it had. Its streams are those that were on the disk.
func (s *NATSServer) Restart() {
	s.tb.Helper()
	_, port, err := net.SplitHostPort(strings.TrimPrefix(s.URL, "nats://"))
	if err != nil {
		s.tb.Fatal(err)
	}
	s.start(port)
}
