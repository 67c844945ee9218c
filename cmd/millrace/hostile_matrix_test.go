package main

import (
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// caller is somebody with a kind of credential.
type caller struct {
	name   string
	header []string
}

// callers are all kinds of credentials: none, malformed ones, the key of each client, a revoked
// key, each token, and sessions of the console.
func (n *hostileNode) callers(t *testing.T) (all []caller) {
	t.Helper()
	owner := n.secrets["owner"]
	for name, value := range map[string]string{
		"nobody": "", "wrong": "Bearer wrong", "of no length": "Bearer ", "basic": "Basic " + owner,
		"an unknown key": "Bearer " + owner[:len(owner)-8] + "AAAAAAAA",
		"two":            "Bearer " + owner + " " + n.secrets["operator"],
		"a long one":     "Bearer " + strings.Repeat("x", 8000),
	} {
		one := caller{name: name}
		if value != "" {
			one.header = []string{"Authorization", value}
		}
		all = append(all, one)
	}
	for name := range n.secrets {
		if name != "" {
			all = append(all, caller{name, n.bearer(name)})
		}
	}
	all = append(all, caller{"session", n.session(t, "operator")},
		caller{"read session", n.session(t, "reader")},
		caller{"a wrong session", []string{"Cookie", "millrace_session=wrong"}})
	slices.SortFunc(all, func(a, b caller) int { return strings.Compare(a.name, b.name) })
	return all
}

// rightful are the callers who may call the routes of an API.
var rightful = map[string][]string{"forgerun": {"owner"}, "relay": {"relay"},
	"taskflow": {"taskflow"}, "images": {"images"}, "fetchbox": {"fetchbox"},
	"worker": {"worker"}, "admin": {"operator", "reader", "session", "read session"},
	"console": {"operator", "reader", "session", "read session"}}

// openRoutes may be called by anybody.
var openRoutes = []string{"POST /v1/clients", "GET /console/login", "POST /console/login",
	"GET /console/style.css", "GET /console/script.js", "GET /console/icon.svg"}

// mayCall reports whether a caller may call a route.
func mayCall(r hostileRoute, name string) bool {
	switch {
	case slices.Contains(openRoutes, r.String()):
		return true
	case r.api == "fetchbox" && strings.HasPrefix(r.pattern, "/operators/"):
		return name == "operator"
	case r.api == "forgerun" && name == "other":
		return !strings.Contains(r.pattern, "{") // lists, and what makes something of its own
	}
	return slices.Contains(rightful[r.api], name)
}

// plantedIn returns the first word of what was planted that is in an answer.
func (r hostileReply) plantedIn(words ...string) string {
	text := fmt.Sprint(r.body, r.header)
	for _, word := range words {
		if strings.Contains(text, word) {
			return word
		}
	}
	return ""
}

// TestIsolationMatrix: I10: each route of each contract, of workers, of operators and of the
// console, asked for what is somebody else's with each kind of credential. Who may not call it gets
// 401 or 403, whether there is such a thing or not, nothing of what was planted, and changes
// nothing. The routes are taken from the documents and the console's table, so a new one is asked
// too: it fails the test if it needs no credential, or if there is nothing to ask it for.
func TestIsolationMatrix(t *testing.T) {
	t.Parallel()
	onHostile(t, func(t *testing.T, n *hostileNode) {
		n.plant(t)
		for _, r := range n.routes {
			n.path(t, r)
		}
		if t.Failed() {
			return
		}
		callers := n.callers(t)
		before := n.snapshot(t)
		refused, shown := n.askAll(t, callers)
		if after := n.snapshot(t); after != before {
			t.Errorf("refused requests have changed something:\n%s\n%s", before, after)
		}
		if refused < 3000 {
			t.Errorf("only %d requests were refused", refused)
		}
		t.Logf("%d requests were refused", refused)
		for api := range rightful {
			if shown[api] == 0 && api != "worker" { // whose routes all change something
				t.Errorf("nothing that was planted is shown by %s to those who may see it", api)
			}
		}
		n.checkForeignIDs(t)
		n.wantHealthy(t)
		n.wantNoSecrets(t)
	})
}

// askAll sends a request of each caller to each route, some at a time. It returns how many were
// refused, and how many answers of each API have shown something that was planted.
func (n *hostileNode) askAll(t *testing.T, callers []caller) (refused int, shown map[string]int) {
	t.Helper()
	shown = map[string]int{}
	var mu sync.Mutex
	var asking sync.WaitGroup
	slots := make(chan struct{}, 8)
	for _, r := range n.routes {
		if rightful[r.api] == nil {
			t.Errorf("%s is of an API for which nobody is rightful", r)
			continue
		}
		slots <- struct{}{}
		asking.Go(func() {
			defer func() { <-slots }()
			for _, c := range callers {
				wrong, seen := 0, 0
				if mayCall(r, c.name) {
					seen = n.askRightfully(t, r, c)
				} else {
					wrong = n.askWrongfully(t, r, c)
				}
				mu.Lock()
				refused, shown[r.api] = refused+wrong, shown[r.api]+seen
				mu.Unlock()
			}
		})
	}
	asking.Wait()
	return refused, shown
}

// requestIDs are what differs between two answers to the same request.
var requestIDs = regexp.MustCompile(
	`"instance":"[^"]*"|data-now="[^"]*"|[0-9a-f]{8}-[0-9a-f-]{27}`)

// askWrongfully sends the request of a caller who may not, for what there is and for what there is
// not. It returns how many were refused.
func (n *hostileNode) askWrongfully(t *testing.T, r hostileRoute, c caller) (refused int) {
	t.Helper()
	body := ""
	if r.method != http.MethodGet && r.method != http.MethodHead {
		body = "{}"
	}
	got := n.do(t, r.method, n.path(t, r), body, c.header...)
	if got.status != http.StatusUnauthorized && got.status != http.StatusForbidden {
		t.Errorf("I10 %s by %s: got %d %.300s", r, c.name, got.status, got.body)
		return 0
	}
	if word := got.plantedIn(plantedWords...); word != "" {
		t.Errorf("I10 %s tells %s of %q: %s", r, c.name, word, got.body)
	}
	// Without a key the first one of a client is made, and of none that is not there.
	isFirstKey := c.name == "nobody" && r.String() == "POST /v1/clients/{client_id}/keys"
	if (c.name != "nobody" && c.name != "an unknown key") || isFirstKey {
		return 1
	}
	missing := n.do(t, r.method, r.path(t, n.missing()), body, c.header...)
	same := func(text string) string { return requestIDs.ReplaceAllString(text, "") }
	if missing.status != got.status || same(missing.body) != same(got.body) {
		t.Errorf("I10 %s by %s tells what exists: %d %s, and %d %s for nothing", r, c.name,
			got.status, got.body, missing.status, missing.body)
	}
	return 2
}

// askRightfully sends the read of a caller who may. It returns 1 where the answer shows something
// that was planted. Nobody is shown anything by a route that is open, nor the other client by its
// lists, and the read token nothing of what jobs carry.
func (n *hostileNode) askRightfully(t *testing.T, r hostileRoute, c caller) int {
	t.Helper()
	isClaim := r.api == "relay" && strings.HasSuffix(r.pattern, "/jobs")
	if r.method != http.MethodGet || isClaim || r.isEndless() {
		return 0
	}
	got := n.do(t, r.method, n.path(t, r)+neededQuery(r), "", c.header...)
	forbidden := got.status == http.StatusUnauthorized || got.status == http.StatusForbidden
	isReader := c.name == "reader" || c.name == "read session"
	if forbidden && !isReader {
		t.Errorf("%s by %s, who may: got %d %.300s", r, c.name, got.status, got.body)
	}
	words := plantedWords
	switch {
	case isReader:
		words = plantedWords[:1]
	case c.name != "other" && !slices.Contains(openRoutes, r.String()):
		if got.plantedIn(words...) != "" {
			return 1
		}
		return 0
	}
	if word := got.plantedIn(words...); word != "" {
		t.Errorf("I10 %s tells %s of %q: %.1000s", r, c.name, word, got.body)
	}
	return 0
}

// neededQuery is the query without which a route shows nothing.
func neededQuery(r hostileRoute) string {
	switch {
	case strings.HasSuffix(r.pattern, "/series"):
		return "?metric=depth"
	case r.pattern == "/operators/jobs/{job_id}/logs":
		return "?limit=100"
	}
	return ""
}

// snapshot returns what the contracts show to those who may see it.
func (n *hostileNode) snapshot(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, r := range n.routes {
		isClaim := r.api == "relay" && strings.HasSuffix(r.pattern, "/jobs")
		if r.method != http.MethodGet || isClaim || r.api == "console" || r.api == "admin" ||
			r.pattern == "/operators/health" {
			continue
		}
		for caller := range maps.Keys(n.secrets) {
			if caller != "other" && mayCall(r, caller) {
				got := n.do(t, r.method, n.path(t, r)+neededQuery(r), "", n.bearer(caller)...)
				fmt.Fprintln(&all, r, got.status, got.body)
			}
		}
	}
	return all.String()
}

// checkForeignIDs: nothing is looked up across contracts: what one contract has made is nothing to
// the routes of another one.
func (n *hostileNode) checkForeignIDs(t *testing.T) {
	t.Helper()
	asked := 0
	for _, r := range n.routes {
		isClaim := r.api == "relay" && strings.HasSuffix(r.pattern, "/jobs")
		if !strings.Contains(r.pattern, "_id}") || r.api == "admin" || r.api == "console" || isClaim {
			continue
		}
		for name, foreign := range n.values {
			api, member, _ := strings.Cut(name, " ")
			if api == r.api || api == "admin" || !strings.HasSuffix(member, "_id}") ||
				(r.api == "worker" && api == "taskflow") || (api == "worker" && r.api == "taskflow") {
				continue
			}
			values := maps.Clone(n.values)
			for of := range values {
				if strings.HasPrefix(of, r.api+" ") && strings.HasSuffix(of, "_id}") {
					values[of] = foreign
				}
			}
			asked++
			got := n.askForeign(t, r, r.path(t, values))
			if word := got.plantedIn(plantedWords...); word != "" {
				t.Errorf("I10 %s finds %s of %s: %s", r, member, api, got.body)
			}
			// A run of Relay that is lost is no error there.
			if got.status < 300 && r.api != "relay" {
				t.Errorf("I10 %s with %s of %s: got %d %s", r, member, api, got.status, got.body)
			}
		}
	}
	if asked < 200 {
		t.Errorf("only %d foreign ids were asked for", asked)
	}
}

// askForeign sends a request as a caller who may call the route.
func (n *hostileNode) askForeign(t *testing.T, r hostileRoute, path string) hostileReply {
	t.Helper()
	for caller := range maps.Keys(n.secrets) {
		if caller == "other" || !mayCall(r, caller) {
			continue
		}
		body := ""
		if r.method != http.MethodGet && r.method != http.MethodHead {
			body = "{}"
		}
		return n.do(t, r.method, path, body, n.bearer(caller)...)
	}
	t.Fatalf("nobody may call %s", r)
	return hostileReply{}
}
