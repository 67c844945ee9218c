package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/millrace/millrace/internal/child"
)

// proxiedServer is a server behind a proxy that runs a configuration of docs/proxies.md.
type proxiedServer struct {
	server *launchedServer
	url    string // of the proxy
	client *http.Client
}

// proxyBlock is the configuration in a language of docs/proxies.md. replace holds pairs: a text
// that stands in it once, and what the test has in its place.
func proxyBlock(t *testing.T, language string, replace ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "proxies.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(text), "```"+language+"\n")
	block, _, closed := strings.Cut(rest, "```")
	if !found || !closed {
		t.Fatal("the page has no configuration of ", language)
	}
	for i := 0; i < len(replace); i += 2 {
		if strings.Count(block, replace[i]) != 1 {
			t.Fatalf("the configuration of %s does not have %q once", language, replace[i])
		}
		block = strings.Replace(block, replace[i], replace[i+1], 1)
	}
	return block
}

// proxyProgram finds a proxy that need not be installed.
func proxyProgram(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil && os.Getenv("MILLRACE_TEST_REQUIRE") == "1" {
		t.Fatal(err)
	}
	if err != nil {
		t.Skip("skipped: ", err)
	}
	return path
}

// startBehindProxy starts a server and a proxy in front of it; run writes the proxy's configuration
// and gives the command.
func startBehindProxy(t *testing.T, scheme string,
	run func(dir, address, upstream string) *exec.Cmd) *proxiedServer {
	t.Helper()
	p := &proxiedServer{server: launchNode(t, "data", "--set", "trusted_proxies=127.0.0.1/32",
		"--set", "log.level=info")}
	dir, address := t.TempDir(), freeAddress(t)
	cmd := run(dir, address, strings.TrimPrefix(p.server.url, "http://"))
	output, err := os.Create(filepath.Join(dir, "output"))
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr, cmd.Dir = output, output, dir
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	child.KillWithParent(cmd)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		output.Close()
		if text, err := os.ReadFile(output.Name()); err == nil && t.Failed() {
			t.Logf("the output of the proxy:\n%s", text)
		}
	})
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn,
		error) {
		return dialerFrom("127.0.0.2").DialContext(ctx, "tcp", address)
	}, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	t.Cleanup(transport.CloseIdleConnections)
	p.url, p.client = scheme+"://"+address, &http.Client{Transport: transport, Timeout: testTimeout}
	pollUntil(t.Fatalf, "the proxy", func() bool {
		resp, err := p.client.Get(p.url + "/health")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
	return p
}

// dialerFrom connects from an address of this machine.
func dialerFrom(address string) *net.Dialer {
	return &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
}

// do sends a request. The path is sent as it is written. header holds pairs.
func (p *proxiedServer) do(t *testing.T, method, path, body string, header ...string) (int,
	string) {
	t.Helper()
	return sendTo(t, p.client, method, p.url+path, body, header...)
}

func sendTo(t *testing.T, client *http.Client, method, target, body string, header ...string) (int,
	string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, target, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// checkAll sends through a proxy the requests that proxies break.
func (p *proxiedServer) checkAll(t *testing.T) {
	t.Helper()
	t.Run("names", p.checkNames)
	t.Run("a body of 5 MB", p.checkLargeBodies)
	t.Run("a log that is followed", p.checkFollowedLog)
	t.Run("the caller's address", p.checkClientAddress) // stops the server
}

// jobPath is where a job lies whose queue has the same name. Dots are escaped as well: as `.` and
// `..` must be.
func jobPath(name string) string {
	escaped := strings.ReplaceAll(url.PathEscape(name), ".", "%2E")
	return "/v2/queues/" + escaped + "/jobs/" + escaped
}

func (p *proxiedServer) submit(t *testing.T, name string) {
	t.Helper()
	body := fmt.Sprintf(`[{"queue":%q,"id":%q,"timeout":60,"payload":1}]`, name, name)
	if status, text := p.do(t, "POST", "/v2/queues/jobs", body); status != http.StatusAccepted {
		t.Fatalf("%q: %d %s", name, status, text)
	}
}

func (p *proxiedServer) checkNames(t *testing.T) {
	for _, name := range []string{"plain", "a/b", "a//b", "/", "%2F", "%252F", "a%b", ".", "..",
		"a/../b", "a.b.", "a b",
		"a+b", "ä€", "a?b#c", "a;b=c,d", "a\\b"} {
		p.submit(t, name)
		status, text := p.do(t, "GET", jobPath(name), "")
		if want := fmt.Sprintf(`"queue":%q,"id":%q`, name, name); status != 200 ||
			!strings.Contains(text, want) {
			t.Errorf("GET %s: %d %s", jobPath(name), status, text)
			continue
		}
		if status, text := p.do(t, "DELETE", jobPath(name), ""); status != 200 {
			t.Errorf("DELETE %s: %d %s", jobPath(name), status, text)
		}
		if status, _ := p.do(t, "GET", jobPath(name), ""); status != 404 {
			t.Errorf("%q is still there: %d", name, status)
		}
	}
}

func (p *proxiedServer) checkLargeBodies(t *testing.T) {
	payload := strings.Repeat("0123456789", 500_000)
	body := fmt.Sprintf(`[{"queue":"large","id":"1","timeout":60,"payload":%q}]`, payload)
	if status, text := p.do(t, "POST", "/v2/queues/jobs", body); status != http.StatusAccepted {
		t.Fatalf("%d %s", status, text)
	}
	if status, text := p.do(t, "GET", "/v2/queues/large/jobs", ""); status != 200 ||
		!strings.Contains(text, payload) {
		t.Errorf("%d, %d bytes", status, len(text))
	}
}

// checkFollowedLog reads a log through the proxy. The answer has no end, so what is buffered until
// there is one never comes.
func (p *proxiedServer) checkFollowedLog(t *testing.T) {
	hold := make(chan struct{})
	origin := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter,
		*http.Request) {
		<-hold
	}))
	t.Cleanup(origin.Close)
	t.Cleanup(func() { close(hold) })
	id := mustPost(t, p.server.url, "",
		`{"manifest_version":"v1","metadata":{},"resources":[{"id":"a","url":"`+origin.URL+`/a"}]}`)
	resp, err := p.client.Get(p.url + "/operators/jobs/" + id + "/logs?follow=true")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	first, err := bufio.NewReader(resp.Body).ReadString('\n')
	if err != nil || !strings.Contains(first, "the job is accepted") {
		t.Errorf("%q: %v", first, err)
	}
}

// checkClientAddress looks in the log for who asked. It stops the server, so that all is written.
func (p *proxiedServer) checkClientAddress(t *testing.T) {
	forged := []string{"X-Forwarded-For", "192.0.2.66", "Forwarded", "for=192.0.2.66",
		"X-Request-Id"}
	p.do(t, "GET", "/v1/jobs", "", append(forged, "through-the-proxy")...)
	direct := &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: dialerFrom("127.0.0.3").DialContext}}
	sendTo(t, direct, "GET", p.server.url+"/v1/jobs", "", append(forged, "past-the-proxy")...)
	p.client.CloseIdleConnections()
	if err := p.server.terminate(); err != nil {
		t.Fatal(err)
	}
	log := p.server.stderr.String()
	for id, want := range map[string]string{"through-the-proxy": "remote=127.0.0.2 ",
		"past-the-proxy": "remote=127.0.0.3:"} {
		found := 0
		for line := range strings.Lines(log) {
			if !strings.Contains(line, "msg=request ") || !strings.Contains(line, id) {
				continue
			}
			if found++; !strings.Contains(line, want) {
				t.Errorf("want %s in %s", want, line)
			}
		}
		if found != 1 {
			t.Errorf("%s is logged %d times:\n%s", id, found, log)
		}
	}
	if strings.Contains(log, "192.0.2.66") {
		t.Errorf("what the caller wrote is believed:\n%s", log)
	}
}

// behindNginx runs the page's configuration of nginx; replace holds pairs, see proxyBlock.
func behindNginx(t *testing.T, replace ...string) *proxiedServer {
	t.Helper()
	nginx := proxyProgram(t, "nginx")
	cert, key := certificateFiles(t)
	return startBehindProxy(t, "https", func(dir, address, upstream string) *exec.Cmd {
		site := proxyBlock(t, "nginx", append(replace, "listen 443 ssl;", "listen "+address+" ssl;",
			"/etc/ssl/jobs.crt", cert, "/etc/ssl/jobs.key", key, "127.0.0.1:8080", upstream)...)
		return nginxCommand(t, nginx, dir, site)
	})
}

// nginxCommand is the command of an nginx with a site.
func nginxCommand(t *testing.T, nginx, dir, site string) *exec.Cmd {
	t.Helper()
	conf := "daemon off; master_process off; error_log stderr; pid pid;\nevents {}\nhttp " +
		"{\naccess_log off;\n"
	for _, temp := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		conf += temp + "_temp_path " + temp + ";\n"
	}
	mustWriteFile(t, dir, "nginx.conf", []byte(conf+site+"}\n"))
	return exec.Command(nginx, "-p", dir, "-e", "stderr", "-c", filepath.Join(dir, "nginx.conf"))
}

// TestBehindNginx runs the configuration of the page.
func TestBehindNginx(t *testing.T) {
	t.Parallel()
	p := behindNginx(t)
	p.submit(t, "../..")
	if status, _ := p.do(t, "GET", jobPath("../.."), ""); status != 400 {
		t.Errorf("a path above the root: %d, the page says 400", status)
	}
	p.checkAll(t)
}

// TestBehindNginxWithSlash: a slash behind the port breaks names, as the page says.
func TestBehindNginxWithSlash(t *testing.T) {
	t.Parallel()
	p := behindNginx(t, "http://127.0.0.1:8080;", "http://127.0.0.1:8080/;")
	p.submit(t, "a/b")
	if status, _ := p.do(t, "GET", jobPath("a/b"), ""); status != 404 {
		t.Errorf("%d, the page says 404", status)
	}
}

// TestBehindCaddy runs the configuration of the page, and the one of its section on HTTP/2.
func TestBehindCaddy(t *testing.T) {
	t.Parallel()
	caddy := proxyProgram(t, "caddy")
	for name, scheme := range map[string]string{"HTTP/1.1": "", "h2c": "h2c://"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := startBehindProxy(t, "http", func(dir, address, upstream string) *exec.Cmd {
				// Without TLS: Caddy would ask an authority for the certificate.
				site := proxyBlock(t, "caddyfile", "jobs.example.org", "http://"+address,
					"127.0.0.1:8080", scheme+upstream)
				mustWriteFile(t, dir, "Caddyfile",
					[]byte("{\n\tadmin off\n\tauto_https off\n}\n"+site))
				cmd := exec.Command(caddy, "run", "--config", filepath.Join(dir, "Caddyfile"),
					"--adapter", "caddyfile")
				cmd.Env = append(os.Environ(), "HOME="+dir, "XDG_DATA_HOME="+dir,
					"XDG_CONFIG_HOME="+dir)
				return cmd
			})
			p.submit(t, "../..")
			if status, text := p.do(t, "GET", jobPath("../.."), ""); status != 200 {
				t.Errorf("a path above the root: %d %s", status, text)
			}
			p.checkAll(t)
		})
	}
}

// TestBehindEnvoy runs the configuration of the page where Envoy is installed. It can be skipped
// also where all tests must run: no registry of the checks has Envoy.
func TestBehindEnvoy(t *testing.T) {
	t.Parallel()
	envoy, err := exec.LookPath("envoy")
	if err != nil {
		t.Skip("skipped: ", err)
	}
	cert, key := certificateFiles(t)
	p := startBehindProxy(t, "https", func(dir, address, upstream string) *exec.Cmd {
		_, port, _ := strings.Cut(address, ":")
		_, upstreamPort, _ := strings.Cut(upstream, ":")
		config := proxyBlock(t, "yaml", "address: 0.0.0.0, port_value: 443",
			"address: 127.0.0.1, port_value: "+port, "port_value: 8080",
			"port_value: "+upstreamPort, "/etc/ssl/jobs.crt", cert, "/etc/ssl/jobs.key", key)
		mustWriteFile(t, dir, "envoy.yaml", []byte(config))
		return exec.Command(envoy, "-c", filepath.Join(dir, "envoy.yaml"), "--concurrency", "1",
			"--disable-hot-restart")
	})
	p.checkAll(t)
}
