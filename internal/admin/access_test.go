package admin_test

import (
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/admin"
	"github.com/millrace/millrace/internal/setting"
	"github.com/millrace/millrace/internal/testkit"
)

func TestDocument(t *testing.T) {
	t.Parallel()
	var routes []string
	for _, r := range table() {
		if strings.HasPrefix(r.Pattern, "/admin/") {
			routes = append(routes, r.Method+" "+r.Pattern)
		}
	}
	document(t).WantRoutes(t, routes, 75)
}

func TestKinds(t *testing.T) {
	t.Parallel()
	testkit.CheckErrorTable(t, admin.ErrorTable)
}

// strictHeaders fails unless an answer has the headers of AD-007.
func strictHeaders(t *testing.T, what string, h http.Header) {
	t.Helper()
	policy := h.Get("Content-Security-Policy")
	for _, part := range []string{"default-src 'none'", "frame-ancestors 'none'",
		"base-uri 'none'"} {
		if !strings.Contains(policy, part) {
			t.Errorf("AD-007 %s: the policy is %q", what, policy)
		}
	}
	if strings.Contains(policy, "unsafe") || strings.Contains(policy, "*") ||
		strings.Contains(policy, "http") {
		t.Errorf("AD-007 %s: the policy %q allows something inline or foreign", what, policy)
	}
	for name, want := range map[string]string{"X-Content-Type-Options": "nosniff",
		"Referrer-Policy": "no-referrer", "Cache-Control": "no-store"} {
		if got := h.Get(name); got != want {
			t.Errorf("AD-007 %s: %s is %q", what, name, got)
		}
	}
}

// pathMember finds the members of a pattern.
var pathMember = regexp.MustCompile(`\{[^}]*\}`)

// neededQueries are those without which a route answers 400, by action.
var neededQueries = map[string]string{"job.count": "?by=state", "series.show": "?metric=depth",
	"console.bulk.new": "?action=replay&queue=q"}

// TestEveryRoute goes through the table: no token, wrong tokens, the read token, pages of another
// origin, and what the log has of them (AD-001, AD-004, AD-005). All of it is asked of one node, as
// nothing that is refused may change what the next request meets.
func TestEveryRoute(t *testing.T) {
	t.Parallel()
	w := inMemory(t, nil)
	session := with(w.login(t, "token="+w.api.Token()))
	for _, row := range table() {
		methods := []string{row.Method}
		if row.Method == http.MethodGet {
			methods = append(methods, http.MethodHead)
		}
		for _, method := range methods {
			t.Run(method+" "+row.Pattern, func(t *testing.T) { checkRoute(t, w, session, row, method) })
		}
	}
}

// checkRoute checks the access to one route. A member of its path is 1.
func checkRoute(t *testing.T, w *world, session []string, row admin.TableRow, method string) {
	row.Pattern = pathMember.ReplaceAllString(row.Pattern, "1")
	api := strings.HasPrefix(row.Pattern, "/admin/")
	newest := w.newestEntry(t)
	refusals := w.refusals(t, row.Action)
	logged := len(w.refusedLines(t))
	for name, header := range map[string][]string{"none": nil,
		"wrong":         {"Authorization", "Bearer wrong"},
		"empty":         {"Authorization", "Bearer "},
		"another kind":  {"Authorization", "Basic " + w.api.Token()},
		"wrong session": {"Cookie", "millrace_session=wrong"},
		"wrong token beside a session": append([]string{"Authorization", "Bearer wrong"},
			session...)} {
		r := w.Do(t, method, row.Pattern, "", header...)
		strictHeaders(t, name, r.Header)
		want := http.StatusUnauthorized
		if row.Public {
			want = map[bool]int{true: 400, false: 200}[row.Changes]
		}
		if r.Status != want {
			t.Errorf("AD-001 %s: got %d, want %d", name, r.Status, want)
		}
		if api && method != http.MethodHead {
			r.WantError(t, 401, "UNAUTHORIZED")
		}
		if !api && !row.Public && method == http.MethodGet && !strings.Contains(r.Body, `name="token"`) {
			t.Errorf("AD-001 %s: it is not the login page: %s", name, r.Body)
		}
	}
	checkRefusedLog(t, w, row, method, logged)
	if row.Public {
		r := w.form(t, row.Pattern, "token="+w.api.Token(), "Origin", "http://evil.example")
		if row.Changes && (r.Status != 403 || r.Header.Get("Set-Cookie") != "") {
			t.Errorf("AD-004 got %d for a login from another origin", r.Status)
		}
		return
	}
	if row.Endless && method == http.MethodGet {
		return // see TestEventsAccess
	}
	r := w.do(t, readToken, method, row.Pattern+neededQueries[row.Action], "")
	strictHeaders(t, "read token", r.Header)
	switch refused := row.Changes && !row.AnyToken; {
	case refused && api:
		r.WantError(t, 403, "READ_ONLY")
	case refused:
		r.WantStatus(t, 403)
	case r.Status >= 400 && r.Status != http.StatusNotFound:
		t.Errorf("AD-005 the read token got %d %s", r.Status, r.Body)
	}
	for _, foreign := range [][]string{{"Origin", "http://evil.example"},
		{"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"}, {"Origin", "null"}} {
		r := w.Do(t, method, row.Pattern, "", append(foreign, session...)...)
		strictHeaders(t, foreign[1], r.Header)
		if (r.Status == 403) != row.Changes {
			t.Errorf("AD-004 %v: got %d %s", foreign, r.Status, r.Body)
		}
		if api && row.Changes {
			r.WantError(t, 403, "FORBIDDEN")
		}
	}
	if !row.Changes {
		if got := w.newestEntry(t); got != newest {
			t.Errorf("a read is in the audit: %+v", got)
		}
		return
	}
	checkRefusals(t, w, row, refusals)
}

// newestEntry returns the id of the newest entry of the audit.
func (w *world) newestEntry(t *testing.T) string {
	t.Helper()
	return w.audit(t, "?limit=1").Items[0].RequestID
}

// refusals counts the refusals of an action in the audit, by code.
func (w *world) refusals(t *testing.T, action string) map[string]int {
	t.Helper()
	codes := map[string]int{}
	for _, e := range w.audit(t, "?limit=500&action="+action).Items {
		codes[string(e.Refused)]++
	}
	return codes
}

// refusedLines returns the lines of the log on requests with wrong credentials.
func (w *world) refusedLines(t *testing.T) []map[string]any {
	t.Helper()
	return w.log.Lines(t, map[string]any{"level": "WARN",
		"msg": "a request was refused for its credentials"})
}

// checkRefusedLog checks that each request of checkRoute with wrong credentials has a line in the
// log, and that none has a token (G-AD-04). Without credentials only a change has one.
func checkRefusedLog(t *testing.T, w *world, row admin.TableRow, method string, before int) {
	t.Helper()
	want := 6
	switch {
	case row.Public:
		want = 0
	case method == http.MethodGet || method == http.MethodHead:
		want = 5
	}
	if lines := w.refusedLines(t)[before:]; len(lines) != want {
		t.Errorf("G-AD-04 the log has %d lines more, want %d: %v", len(lines), want, lines)
	}
	if strings.Contains(w.log.String(), w.api.Token()) || strings.Contains(w.log.String(), "wrong") {
		t.Errorf("G-AD-04 the log has a token: %s", w.log)
	}
}

// checkRefusals checks that what checkRoute was refused is in the audit, and has changed nothing.
func checkRefusals(t *testing.T, w *world, row admin.TableRow, before map[string]int) {
	t.Helper()
	want := maps.Clone(before)
	want[`"FORBIDDEN"`] += 4
	if !row.AnyToken {
		want[`"READ_ONLY"`]++
	}
	if got := w.refusals(t, row.Action); !maps.Equal(got, want) {
		t.Errorf("AD-006 G-AD-04 refusals in the audit: %v, want %v", got, want)
	}
	w.do(t, w.api.Token(), "GET", "/admin/v1/health", "").WantStatus(t, 200)
}

// Without credentials no path and no method tells anything; with them a wrong one is named.
func TestUnknownPaths(t *testing.T) {
	t.Parallel()
	w := inMemory(t, nil)
	token := w.api.Token()
	for _, path := range []string{"/admin/v1", "/admin/v1/", "/admin/v1/nothing",
		"/admin/v1/jobs/1/nothing", "/admin/v1/%00", "/admin/v1/audit/"} {
		for _, method := range []string{"GET", "POST", "DELETE", "OPTIONS", "BREW"} {
			r := w.do(t, "", method, path, "").WantError(t, 401, "UNAUTHORIZED") // G-AD-01
			strictHeaders(t, path, r.Header)
			w.do(t, readToken, method, path, "").WantError(t, 404, "NOT_FOUND")
		}
	}
	if r := w.do(t, token, "DELETE", "/admin/v1/audit", "").WantError(t, 405,
		"METHOD_NOT_ALLOWED"); r.Header.Get("Allow") != "GET, HEAD" {
		t.Errorf("allowed are %q", r.Header.Get("Allow"))
	}
	for _, path := range []string{"/console/nothing", "/console/%00", "/console/login/x"} {
		r := w.do(t, "", "GET", path, "").WantStatus(t, 401)
		if !strings.Contains(r.Body, `name="token"`) {
			t.Errorf("AD-001 %s is not the login page: %s", path, r.Body)
		}
		if r = w.do(t, token, "GET", path, ""); r.Status != 404 ||
			!strings.Contains(r.Body, "<h1>Not found</h1>") {
			t.Errorf("%s: got %d %s", path, r.Status, r.Body)
		}
	}
}

// TestStrictRequests: what a route does not know is refused by name.
func TestStrictRequests(t *testing.T) {
	t.Parallel()
	w := inMemory(t, nil)
	token := w.api.Token()
	document(t).WantUnknownQueriesRefused(t, "VALIDATION_ERROR",
		func(method, path string) testkit.Reply { return w.do(t, token, method, path, "{}") },
		"GET /admin/v1/audit", "GET /admin/v1/settings", "GET /admin/v1/health")
	for body, words := range map[string]string{`{"tokn":1}`: `"tokn"`, `[]`: "object",
		`{`: "JSON", `{"a":1}{}`: "JSON"} {
		w.do(t, token, "POST", "/admin/v1/token/rotate", body).WantError(t, 400,
			"VALIDATION_ERROR", words)
	}
	w.do(t, token, "POST", "/admin/v1/login-codes", "{}", "Content-Type",
		"text/plain").WantError(t, 415, "VALIDATION_ERROR")
	w.do(t, token, "POST", "/admin/v1/login-codes",
		`{"a":"`+strings.Repeat("x", 1<<20)+`"}`).WantError(t, 413, "VALIDATION_ERROR")
	for _, query := range []string{"limit=0", "limit=501", "limit=x", "limit=", "limit=1&limit=2",
		"cursor=x", "cursor=", "cursor=YXVkaXQ6eA", "from=yesterday", "to=1", "action=",
		"from=2026-03-01"} {
		w.do(t, token, "GET", "/admin/v1/audit?"+query, "").WantError(t, 400, "VALIDATION_ERROR",
			query[:strings.Index(query, "=")])
	}
	for _, actor := range []string{"ü", strings.Repeat("a", 101), "a\tb"} {
		w.do(t, token, "GET", "/admin/v1/health", "", "Millrace-Actor", actor).WantError(t, 400,
			"VALIDATION_ERROR", "Millrace-Actor")
		w.do(t, "wrong", "GET", "/admin/v1/health", "", "Millrace-Actor", actor).WantError(t, 401,
			"UNAUTHORIZED")
	}
}

// TestGeneratedToken: AD-002, the first start makes the token, for the user's eyes only, and later
// starts find it.
func TestGeneratedToken(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		info, err := os.Stat(w.file)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Fatalf("AD-002 %v, %v", info, err)
		}
		text, err := admin.ReadToken(w.file)
		if err != nil || len(text) < 26 || text != w.api.Token() {
			t.Fatalf("AD-002 the file has %q, the node %q, %v", text, w.api.Token(), err)
		}
		w.do(t, text, "GET", "/admin/v1/health", "").WantStatus(t, 200)
	})
}

// TestRotation: AD-002, G-AD-02: the former token, its sessions and its codes end with it.
func TestRotation(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		former := w.api.Token()
		code, session := w.code(t), with(w.login(t, "token="+former))
		reader := with(w.login(t, "token="+readToken))
		w.Do(t, "GET", "/admin/v1/health", "", session...).WantStatus(t, 200)
		made := testkit.DecodeReply[struct{ Token string }](t, w.do(t, former, "POST",
			"/admin/v1/token/rotate", "", "Millrace-Actor", "alice").WantStatus(t, 200)).Token
		if made == former || made != w.api.Token() {
			t.Fatalf("got %q after %q, in force is %q", made, former, w.api.Token())
		}
		if stored, err := admin.ReadToken(w.file); err != nil || stored != made {
			t.Errorf("the file has %q, %v", stored, err)
		}
		w.do(t, former, "GET", "/admin/v1/health", "").WantError(t, 401, "UNAUTHORIZED")
		w.Do(t, "GET", "/admin/v1/health", "", session...).WantError(t, 401, "UNAUTHORIZED")
		w.form(t, "/console/login", "code="+code).WantStatus(t, 401)
		w.Do(t, "GET", "/admin/v1/health", "", reader...).WantStatus(t, 200)
		e := w.audit(t, "?action=token.rotate").Items
		if len(e) != 1 || e[0].Actor != "operator:alice" || e[0].Target != "token:operator" ||
			e[0].Remote != "127.0.0.1" || string(e[0].Refused) != "null" {
			t.Errorf("AD-006 the audit has %+v", e)
		}
	})
}

// A token of the settings is not rotated here, and no file is made for it.
func TestTokenOfSetting(t *testing.T) {
	t.Parallel()
	w := inMemory(t, func(c *admin.Config) { c.Token = setting.NewSecret("configured") })
	w.do(t, "configured", "POST", "/admin/v1/token/rotate", "").WantError(t, 409, "CONFLICT",
		"operator.token")
	if _, err := os.Stat(w.file); !os.IsNotExist(err) {
		t.Errorf("there is a file: %v", err)
	}
}

// TestTokenIsShared: the nodes of a store have one token, and a rotation on one reaches the other.
func TestTokenIsShared(t *testing.T) {
	t.Parallel()
	p := testkit.OnPostgres(t)
	shared := func(c *admin.Config) { c.Shared = true }
	first := newWorld(t, p.Store, p.Clock, shared)
	second := newWorld(t, p.Reopen(t), p.Clock, shared)
	if first.api.Token() == "" || first.api.Token() != second.api.Token() {
		t.Fatalf("AD-002 tokens %q and %q", first.api.Token(), second.api.Token())
	}
	second.run(t)
	session := with(second.login(t, "code="+first.code(t))) // made on one, used on the other
	first.Do(t, "GET", "/admin/v1/health", "", session...).WantStatus(t, 200)
	former := first.api.Token()
	first.do(t, former, "POST", "/admin/v1/token/rotate", "").WantStatus(t, 200)
	if err := second.engine.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	testkit.WaitUntil(t, "the rotation", func() bool { return second.api.Token() == first.api.Token() })
	second.do(t, former, "GET", "/admin/v1/health", "").WantError(t, 401, "UNAUTHORIZED")
	second.Do(t, "GET", "/admin/v1/health", "", session...).WantError(t, 401, "UNAUTHORIZED")
	testkit.WaitUntil(t, "the file", func() bool {
		stored, err := admin.ReadToken(second.file)
		return err == nil && stored == first.api.Token()
	})
}

// A node with another pepper cannot open the token: it says so and lets nobody in.
func TestOtherPepper(t *testing.T) {
	t.Parallel()
	p := testkit.OnPostgres(t)
	first := newWorld(t, p.Store, p.Clock, func(c *admin.Config) { c.Shared = true })
	second := newWorld(t, p.Reopen(t), p.Clock, func(c *admin.Config) {
		c.Shared, c.Pepper = true, []byte(strings.Repeat("other", 8))
	})
	second.do(t, first.api.Token(), "GET", "/admin/v1/health", "").
		WantError(t, 503, "UNAVAILABLE", "pepper of another node", "secrets.pepper_file")
	second.do(t, readToken, "GET", "/admin/v1/health", "").WantStatus(t, 200)
	lines := second.log.Lines(t, map[string]any{"level": "ERROR"})
	if len(lines) != 1 {
		t.Errorf("the log has %v", lines)
	}
}

// TestSessions: AD-003, AD-004.
func TestSessions(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		code := w.code(t)
		r := w.Do(t, "GET", "/console/login?code="+code, "").WantStatus(t, 200)
		if !strings.Contains(r.Body, code) || !strings.Contains(r.Body, "<button") ||
			!strings.Contains(r.Body, `<meta name="referrer" content="same-origin">`) {
			t.Errorf("G-AD-02 the page is %s", r.Body)
		}
		cookie := w.login(t, "code="+code)
		if !cookie.HttpOnly || cookie.SameSite != http.SameSiteStrictMode || cookie.Secure ||
			cookie.Path != "/" {
			t.Errorf("AD-004 the cookie is %v", cookie)
		}
		w.form(t, "/console/login", "code="+code).WantStatus(t, 401) // AD-003: one use
		for range 3 {                                                // AD-004: 12 h from the last use
			w.clock.Advance(12 * time.Hour)
			w.Do(t, "GET", "/console", "", with(cookie)...).WantStatus(t, 200)
		}
		w.Do(t, "POST", "/admin/v1/login-codes", "", with(cookie)...).WantStatus(t, 201) // G-AD-03
		w.clock.Advance(12*time.Hour + time.Minute)
		w.Do(t, "GET", "/console", "", with(cookie)...).WantStatus(t, 401)

		late := w.code(t)
		w.clock.Advance(15 * time.Minute)
		w.form(t, "/console/login", "code="+late).WantStatus(t, 401) // AD-003: 15 minutes
		cookie = w.login(t, "code="+w.code(t))
		out := w.form(t, "/console/logout", "", with(cookie)...).WantStatus(t, 303)
		if !strings.Contains(out.Header.Get("Set-Cookie"), "Max-Age=0") {
			t.Errorf("the cookie stays: %v", out.Header)
		}
		w.Do(t, "GET", "/console", "", with(cookie)...).WantStatus(t, 401)
		want := []string{"login.create", "session.create", "login.create", "login.create",
			"login.create", "session.create", "session.end"}
		if got := w.actions(t); !slices.Equal(got, want) {
			t.Errorf("AD-006 the audit has %v, want %v", got, want)
		}
	})
}

// Of many that use a code at the same time one is let in.
func TestCodeIsUsedOnce(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		code := w.code(t)
		all := testkit.RunConcurrently(16, func(int) int {
			return w.form(t, "/console/login", "code="+code).Status
		})
		slices.Sort(all)
		if all[0] != 303 || all[1] != 401 || all[15] != 401 {
			t.Errorf("AD-003 got %v", all)
		}
	})
}

// A login with the read token gives a session that only reads.
func TestReadSession(t *testing.T) {
	t.Parallel()
	w := inMemory(t, func(c *admin.Config) { c.SecureCookies = true })
	cookie := w.login(t, "token="+readToken)
	if !cookie.Secure {
		t.Error("AD-004 the cookie is not Secure under TLS")
	}
	w.Do(t, "GET", "/admin/v1/audit", "", with(cookie)...).WantStatus(t, 200)
	w.Do(t, "POST", "/admin/v1/login-codes", "", with(cookie)...).WantError(t, 403, "READ_ONLY")
	for _, wrong := range []string{"", "token=", "code=&token=", "token=a&code=b", "token=a&token=b",
		"user=me", "%zz"} {
		w.form(t, "/console/login", wrong).WantStatus(t, 400)
	}
	w.form(t, "/console/login", "token=wrong").WantStatus(t, 401)
	if lines := w.log.Lines(t, map[string]any{"level": "WARN"}); len(lines) != 1 {
		t.Errorf("G-AD-04 the log has %v", lines)
	}
	w.form(t, "/console/logout", "", with(cookie)...).WantStatus(t, 303)
}
