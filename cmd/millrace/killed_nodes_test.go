package main

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/internal/store/storetest/pgtest"
)

// killedNodes are the nodes of one store, server processes that a test kills and starts again while
// its clients go on.
type killedNodes struct {
	*testing.T
	program string
	store   string // the URL of the PostgreSQL of several nodes
	dirs    []string
	args    []string
	environ []string         // nil: as the test has it
	clients []*client.Client // one for each node, as its operator

	mu    sync.Mutex        // guards nodes
	nodes []*launchedServer // nil while one is being started again
}

// startNodes starts a node on SQLite, or several on a PostgreSQL.
func startNodes(t *testing.T, n int, environ []string, args ...string) *killedNodes {
	t.Helper()
	w := &killedNodes{T: t, program: mustMillrace(t), environ: environ,
		nodes: make([]*launchedServer, n),
		args:  append([]string{"--set", "log.level=error"}, args...)}
	if n > 1 {
		dir := t.TempDir()
		mustWriteFile(t, dir, "pepper", []byte(strings.Repeat("0123456789abcdef", 4)))
		w.store = pgtest.URL(t)
		w.args = append(w.args, "--set", "store="+w.store, "--set",
			"secrets.pepper_file="+filepath.Join(dir, "pepper"))
	}
	for i := range n {
		w.dirs = append(w.dirs, filepath.Join(t.TempDir(), fmt.Sprint("node", i)))
		w.start(i)
		w.clients = append(w.clients, w.newClient(i))
	}
	return w
}

// onKilledNodes runs a test with one node on SQLite and with several on PostgreSQL.
func onKilledNodes(t *testing.T, several int, test func(*killedNodes), args ...string) {
	t.Parallel()
	for name, nodes := range map[string]int{"sqlite": 1, "postgres": several} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := startNodes(t, nodes, nil, args...)
			test(w)
			w.stop()
		})
	}
}

// start starts a node on its directory.
func (w *killedNodes) start(at int) {
	w.Helper()
	s, err := launch(w.program, w.dirs[at], w.environ, w.args...)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(s.kill)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.nodes[at] = s
}

// kill kills a node, in turn, and starts it again.
func (w *killedNodes) kill(n int) {
	w.Helper()
	at := n % len(w.nodes)
	w.killNode(at)
	w.start(at)
}

// killNode kills a node.
func (w *killedNodes) killNode(at int) {
	w.mu.Lock()
	s := w.nodes[at]
	w.nodes[at] = nil
	w.mu.Unlock()
	s.kill()
}

// stop stops all nodes, which must end by themselves.
func (w *killedNodes) stop() {
	w.Helper()
	for _, n := range w.nodes {
		if err := n.terminate(); err != nil {
			w.Error(err)
		}
	}
}

// newClient makes a client of a node as its operator. It tries again while the node is unavailable.
func (w *killedNodes) newClient(at int) *client.Client {
	w.Helper()
	token, err := os.ReadFile(filepath.Join(w.dirs[0], "operator.token"))
	if err != nil {
		w.Fatal(err)
	}
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	w.Cleanup(transport.CloseIdleConnections)
	c, err := client.New(client.Config{BaseURL: "http://node.test",
		Token:      strings.TrimSpace(string(token)),
		HTTPClient: &http.Client{Transport: &toNode{transport, w, at}},
		Retry:      client.Retry{MaxTries: -1}})
	if err != nil {
		w.Fatal(err)
	}
	return c
}

// client returns the client of the last node.
func (w *killedNodes) client() *client.Client { return w.clients[len(w.clients)-1] }

func (w *killedNodes) admin() *client.Admin { return w.client().Admin() }

// toNode sends requests to where a node listens now.
type toNode struct {
	*http.Transport
	w  *killedNodes
	at int
}

func (t *toNode) RoundTrip(req *http.Request) (*http.Response, error) {
	t.w.mu.Lock()
	node := t.w.nodes[t.at]
	t.w.mu.Unlock()
	if node == nil {
		return nil, errors.New("the node is killed")
	}
	target, err := url.Parse(node.url)
	if err != nil {
		return nil, err
	}
	req = req.Clone(req.Context())
	req.URL.Host = target.Host
	return t.Transport.RoundTrip(req)
}
