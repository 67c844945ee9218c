package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// adminWorld is a server of the binary with all that operators look at: jobs and dead letters of
// all contracts, the series of a week, clients, webhooks with deliveries, schedules, bulk
// operations and a long audit.
type adminWorld struct {
	*relayQueue
	token, session string // the operator's, and the cookie of one who has logged in
	http           *http.Client
	owners         []string     // the clients of ForgeRun
	key            string       // of the first, which has the webhooks
	hooks          *http.Server // receives the deliveries
}

// What there is in addition to the jobs.
const (
	worldClients    = 100
	worldWebhooks   = 10
	worldDeliveries = 100 // to each webhook
	worldSchedules  = 200
	worldOperations = 30
	worldAudit      = 2000
	// worldPart divides these numbers where few jobs are asked for.
	worldPart = 10_000
)

// worldFlags keep limits and retentions out of what is measured. The server runs no jobs.
var worldFlags = append([]string{"--no-workers", "--set", "log.level=error",
	"--set", "forgerun.retention=8760h", "--set", "fetchbox.ledger_retention=8760h",
	"--set", "forgerun.anonymous_rate_limit_per_minute=1000000"},
	forgeLimits...)

// newAdminWorld builds the binary and fills the store with n jobs and a past.
func newAdminWorld(ctx context.Context, env *Env, onPostgres bool, n int,
	past time.Duration) (_ *adminWorld, err error) {
	w := &adminWorld{http: &http.Client{Transport: &http.Transport{DisableCompression: true,
		MaxIdleConnsPerHost: 64},
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		}}}
	if w.relayQueue, err = newRelayQueue(ctx, env, onPostgres); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.Close())
		}
	}()
	w.flags, w.queues = worldFlags, 20
	if err := w.clear(ctx); err != nil {
		return nil, err
	}
	for _, step := range []struct {
		what string
		do   func(context.Context, int) error
	}{
		{"start", func(ctx context.Context, _ int) error { return w.start(ctx) }},
		{"what is stored beside the jobs", w.addBeside},
		{"fill", func(ctx context.Context, n int) error { return w.fillAll(ctx, n, past) }},
		{"start on what was filled", func(ctx context.Context, _ int) error {
			return w.start(ctx)
		}},
		{"bulk operations", w.addOperations},
		{"deliveries", w.addDeliveries},
	} {
		began := time.Now()
		if err := step.do(ctx, n); err != nil {
			return nil, fmt.Errorf("%s: %w", step.what, err)
		}
		fmt.Fprintf(env.Log, "%s: %s\n", step.what, time.Since(began).Round(time.Millisecond))
	}
	return w, nil
}

// Close stops the server and removes what it stored.
func (w *adminWorld) Close() error {
	w.http.CloseIdleConnections()
	err := errors.Join(w.relayQueue.Close(), os.RemoveAll(w.dir))
	if w.hooks != nil {
		err = errors.Join(err, w.hooks.Close())
	}
	return err
}

// part scales a number for worldPart jobs to n jobs if those are fewer; it is at least 2.
func part(many, n int) int { return max(2, min(many, many*n/worldPart)) }

// start starts the server and logs in.
func (w *adminWorld) start(ctx context.Context) error {
	if err := w.serve(ctx); err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(w.data(0), "operator.token"))
	if err != nil {
		return err
	}
	w.token = strings.TrimSpace(string(text))
	res, err := w.http.PostForm(w.url("/console/login"), url.Values{"token": {w.token}})
	if err != nil {
		return err
	}
	res.Body.Close()
	if len(res.Cookies()) != 1 {
		return fmt.Errorf("a login was answered %d and gave no session", res.StatusCode)
	}
	w.session = res.Cookies()[0].Name + "=" + res.Cookies()[0].Value
	return nil
}

func (w *adminWorld) addr() string { return w.servers[0].addr }

func (w *adminWorld) url(path string) string { return "http://" + w.addr() + path }

// errGone reports that there is nothing at a path, as after a job that was completed.
var errGone = errors.New("there is no such thing")

// send sends a request and returns the answer, which must have a status of success.
func (w *adminWorld) send(req *http.Request) ([]byte, error) {
	res, err := w.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		return nil, err
	}
	switch {
	case res.StatusCode == http.StatusNotFound:
		return nil, errGone
	case res.StatusCode/100 != 2:
		return nil, fmt.Errorf("%s %s was answered %d: %.300s", req.Method, req.URL,
			res.StatusCode, answer)
	}
	return answer, nil
}

// call sends a body with a token and decodes the answer.
func (w *adminWorld) call(ctx context.Context, token, method, path, body string, to any) error {
	req, err := http.NewRequestWithContext(ctx, method, w.url(path), strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	answer, err := w.send(req)
	if err != nil || to == nil {
		return err
	}
	return json.Unmarshal(answer, to)
}

// get is the answer to a GET with the session.
func (w *adminWorld) get(ctx context.Context, path string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.url(path), nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Cookie", w.session)
	return w.send(req)
}

// admin is call with the operator's token.
func (w *adminWorld) admin(ctx context.Context, method, path, body string, to any) error {
	return w.call(ctx, w.token, method, path, body, to)
}

// newClient makes a client of ForgeRun and returns its key.
func (w *adminWorld) newClient(ctx context.Context) (key string, err error) {
	var made struct {
		Client string `json:"client_id"`
		Key    string `json:"api_key"`
	}
	if err := w.call(ctx, "", "POST", "/v1/clients", "{}", &made); err != nil {
		return "", err
	}
	w.owners = append(w.owners, made.Client)
	err = w.call(ctx, "", "POST", "/v1/clients/"+made.Client+"/keys", "{}", &made)
	return made.Key, err
}

// addBeside makes what needs no jobs, and stops the server.
func (w *adminWorld) addBeside(ctx context.Context, n int) error {
	if err := w.addHooks(ctx, n); err != nil {
		return err
	}
	for range part(worldClients, n) - 1 {
		if _, err := w.newClient(ctx); err != nil {
			return err
		}
	}
	for i := range part(worldSchedules, n) {
		body := fmt.Sprintf(`{"name":"schedule-%d","every":"24h","contract":"relay",`+
			`"request":{"queue":"scheduled","id":"s%d","timeout":60,"payload":{}}}`, i, i)
		if err := w.admin(ctx, "POST", "/admin/v1/schedules", body, nil); err != nil {
			return err
		}
	}
	for i := range part(worldAudit, n) { // each is an entry
		path := "/admin/v1/queues/relay/r" + strconv.Itoa(i%20)
		body := fmt.Sprintf(`{"run_limit":%d}`, i+1)
		if err := w.admin(ctx, "PATCH", path, body, nil); err != nil {
			return err
		}
	}
	for i := range 20 {
		path := "/admin/v1/queues/relay/r" + strconv.Itoa(i)
		if err := w.admin(ctx, "DELETE", path, "", nil); err != nil {
			return err
		}
	}
	return w.relayQueue.Close()
}

// addHooks makes a client with webhooks, of which a fifth fails.
func (w *adminWorld) addHooks(ctx context.Context, n int) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	w.hooks = &http.Server{Handler: http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			if strings.HasPrefix(r.URL.Path, "/fails") {
				w.WriteHeader(http.StatusInternalServerError)
			}
		})}
	go func() { _ = w.hooks.Serve(listener) }() // ended by Close
	if w.key, err = w.newClient(ctx); err != nil {
		return err
	}
	for i := range part(worldWebhooks, n) {
		path := []string{"fails", "hook", "hook", "hook", "hook"}[i%5]
		body := fmt.Sprintf(`{"url":"http://%s/%s/%d","events":["job_created"]}`,
			listener.Addr(), path, i)
		if err := w.call(ctx, w.key, "POST", "/v1/webhooks", body, nil); err != nil {
			return err
		}
	}
	return nil
}

// fillAll fills the store of the server that is stopped.
func (w *adminWorld) fillAll(ctx context.Context, n int, past time.Duration) error {
	s, err := openStore(ctx, w.pg, filepath.Join(w.data(0), "millrace.db"))
	if err != nil {
		return err
	}
	defer s.Close()
	began := time.Now()
	if err := fillPast(ctx, s, past); err != nil {
		return err
	}
	fmt.Fprintf(w.env.Log, "of this the past: %s\n", time.Since(began).Round(time.Millisecond))
	f := &adminFill{store: s, n: n, now: time.Now().UTC().Truncate(time.Microsecond),
		owners: w.owners}
	if err := f.run(ctx); err != nil || w.pg == nil {
		return err
	}
	pool, err := w.pg.Pool(ctx, 1)
	if err != nil {
		return err
	}
	defer pool.Close()
	// As autovacuum does in the weeks in which so many jobs come.
	_, err = pool.Exec(ctx, "VACUUM ANALYZE")
	return err
}

// addOperations starts bulk operations and waits until they are done. They are about a job that is
// not there, as one that looks for its jobs looks at all of them.
func (w *adminWorld) addOperations(ctx context.Context, n int) error {
	for range part(worldOperations, n) {
		if err := w.admin(ctx, "POST", "/admin/v1/bulk", `{"action":"delete",`+
			`"filter":{"contract":"relay","queue":"r0","id":"none"}}`, nil); err != nil {
			return err
		}
	}
	return w.await(ctx, func() (bool, error) {
		var list struct{ Items []struct{ State string } }
		err := w.admin(ctx, "GET", "/admin/v1/bulk?limit=500", "", &list)
		for _, o := range list.Items {
			if o.State != "done" {
				return false, err
			}
		}
		return len(list.Items) > 0, err
	})
}

// addDeliveries submits jobs, of which each webhook gets the events, and waits until the first is.
func (w *adminWorld) addDeliveries(ctx context.Context, n int) error {
	for range part(worldDeliveries, n) {
		if err := w.call(ctx, w.key, "POST", "/v1/jobs",
			`{"type":"EXECUTE","work_kind":"SUCCESS_FAST"}`, nil); err != nil {
			return err
		}
	}
	var hooks struct{ Items []struct{ ID string } }
	if err := w.admin(ctx, "GET", "/admin/v1/webhooks", "", &hooks); err != nil {
		return err
	}
	if len(hooks.Items) == 0 {
		return errors.New("there is no webhook")
	}
	path := "/admin/v1/webhooks/" + hooks.Items[0].ID + "/deliveries"
	return w.await(ctx, func() (bool, error) {
		var list struct{ Items []json.RawMessage }
		err := w.admin(ctx, "GET", path, "", &list)
		return len(list.Items) > 0, err
	})
}

// await asks until something is so.
func (w *adminWorld) await(ctx context.Context, so func() (bool, error)) error {
	for {
		ok, err := so()
		if ok || err != nil {
			return err
		}
		if err := sleep(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
}

// getRequest is a request for a path with the session or, for the API, with the token.
func (w *adminWorld) getRequest(path string) []byte {
	head := fmt.Appendf(nil, "GET %s HTTP/1.1\r\nHost: %s\r\n", path, w.addr())
	if strings.HasPrefix(path, "/console") {
		head = fmt.Appendf(head, "Cookie: %s\r\nAccept: text/html\r\n", w.session)
	} else {
		head = fmt.Appendf(head, "Authorization: Bearer %s\r\n", w.token)
	}
	return append(head, "\r\n"...)
}
