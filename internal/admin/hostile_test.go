package admin_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/millrace/millrace/internal/admin"
)

// hostileTexts are values of query parameters and members of paths that nobody means. Those of
// databaseTexts are such as a database may refuse or take for something else.
var hostileTexts = append(databaseTexts, "-1", "0", "01", "+1", "1e3", "1.5", " ", `"`, "../..",
	"a/b", "null", "true", "2026-02-30T00:00:00Z", ",", ",,a", strings.Repeat("9", 400),
	strings.Repeat("x", 3000), strings.Repeat("ä,", 500))

var databaseTexts = []string{"\x00", "a\x00b", "\xff\xfe", "99999999999999999999999",
	"9223372036854775807", "-9223372036854775808", "'", "%", "\u202e\U0001F600",
	"0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z"}

// hostileValues are values of members of bodies. Those of databaseValues are such as a database may
// refuse.
var hostileValues = append(databaseValues, `{"a":1}`, `[[1]]`, `1e400`, `-1`, `1.5`, `true`, `null`,
	`""`, `" "`, strings.Repeat("[", 5000)+strings.Repeat("]", 5000))

var databaseValues = []string{`"\u0000"`, `"a\u0000b"`, `"\ud800"`, `99999999999999999999999`,
	`"\u202e"`, `"0001-01-01T00:00:00Z"`, `"9999-12-31T23:59:59.999999Z"`,
	`"` + strings.Repeat("x", 70_000) + `"`}

// hostilePositions are positions in cursors. Those of databasePositions reach a database.
var hostilePositions = append(databasePositions, "", "-1", "01")

var databasePositions = []string{"\x00", "a\x00", "\xff", "99999999999999999999"}

// hostileBodies are bodies that are no object with known members.
var hostileBodies = []string{"null", "1", `"a"`, "[]", "{", "}", `{"a":}`, "{}{}", "\x00", "\xff",
	"\ufeff{}", `{"a":1,"a":2}`, `{"":1}`, `{"` + strings.Repeat("n", 100_000) + `":1}`,
	strings.Repeat("[", 100_000), strings.Repeat(`{"a":`, 20_000) + "1" + strings.Repeat("}", 20_000)}

// bounded is a path as an error shows it.
func bounded(text string) string { return text[:min(len(text), 200)] }

// TestHostileRequests (G-AD-01): whatever stands in a member of a path, a query parameter or a body
// of each route, the answer is none of a defect, a request that makes no sense is refused, and what
// is accepted the document allows. What is refused before the store is asked, such as bodies that
// are no JSON, is sent once, to the node on SQLite.
func TestHostileRequests(t *testing.T) {
	withHooks(t, func(t *testing.T, hooks *hooksWorld) {
		w := &hostileWorld{refusedWorld: &refusedWorld{hooksWorld: hooks}, texts: hostileTexts,
			values: hostileValues, positions: hostilePositions, broken: hostileBodies}
		if strings.HasSuffix(t.Name(), "/postgres") {
			w.texts, w.broken = databaseTexts, nil
			w.values, w.positions = databaseValues, databasePositions
		}
		w.fill(t)
		for _, row := range table() {
			if row.Endless || row.Public || strings.HasSuffix(row.Pattern, "/logout") {
				continue
			}
			t.Run(row.Method+" "+row.Pattern, func(t *testing.T) { w.sendHostileTo(t, row) })
		}
		if lines := w.log.Lines(t, map[string]any{"level": "ERROR"}); len(lines) > 0 {
			t.Errorf("the log has %v", lines)
		}
		w.do(t, w.api.Token(), "GET", "/admin/v1/health", "").WantStatus(t, http.StatusOK)
	})
}

// hostileWorld is a world with what is sent to each of its routes. broken is nil where nothing is
// sent that is refused before the store is asked.
type hostileWorld struct {
	*refusedWorld
	texts, values, positions, broken []string
}

// sendHostileTo sends all hostile requests to a route. Nothing is in the inbox, so no body reaches
// its requests.
func (w *hostileWorld) sendHostileTo(t *testing.T, row admin.TableRow) {
	t.Helper()
	w.sendHostilePaths(t, row)
	w.sendHostileQueries(t, row)
	if row.Changes && strings.HasPrefix(row.Pattern, "/admin/") && row.Action != "token.rotate" &&
		!isOfInbox(row) {
		w.sendHostileBodies(t, row)
	}
}

// isOfInbox reports whether a route is about one request in the inbox. The worlds that have all
// else have none; inbox_test.go changes requests.
func isOfInbox(row admin.TableRow) bool {
	return strings.HasPrefix(row.Pattern, "/admin/v1/inbox/")
}

// sendHostile sends a request as the operator. The answer is none of a defect.
func (w *hostileWorld) sendHostile(t *testing.T, method, path, body string,
	header ...string) (status int, text string) {
	t.Helper()
	r := w.do(t, w.api.Token(), method, path, body, header...)
	if r.Status >= 500 {
		t.Errorf("%s %s %s: got %d %s", method, bounded(path), bounded(body), r.Status, r.Body)
	}
	if len(r.Body) > 4096 && r.Status >= 400 && strings.HasPrefix(path, "/admin/") {
		t.Errorf("%s %s: the refusal has %d bytes", method, bounded(path), len(r.Body))
	}
	return r.Status, r.Body
}

// sendHostilePaths puts hostile texts into each member of a path. None of them names anything but
// queues, which need not be there.
func (w *hostileWorld) sendHostilePaths(t *testing.T, row admin.TableRow) {
	t.Helper()
	path, body := w.request(row)
	real, pattern := strings.Split(path, "/"), strings.Split(row.Pattern, "/")
	for i, part := range pattern {
		if !strings.HasPrefix(part, "{") {
			continue
		}
		for _, text := range w.texts {
			parts := append([]string{}, real...)
			if parts[i] = url.PathEscape(text); text == "../.." {
				parts[i] = ".."
			}
			status, answer := w.sendHostile(t, row.Method, strings.Join(parts, "/"), body,
				"Content-Type", "application/json")
			if status < 300 && part != "{queue}" {
				t.Errorf("%s %s with %q is accepted: %d %s", row.Method, row.Pattern,
					bounded(text), status, bounded(answer))
			}
		}
	}
}

// cursorNames are the names of lists in their cursors.
var cursorNames = []string{"audit", "bulk", "clients", "contracts", "dead-letters", "deliveries",
	"groups", "jobs", "jobs oldest", "node", "queue", "queue by depth", "schedule", "setting",
	"webhook", "worker"}

// isText reports whether a position may be a name.
func isText(position string) bool {
	return position != "" && utf8.ValidString(position) && !strings.Contains(position, "\x00")
}

// sendHostileQueries gives hostile texts to each query parameter.
func (w *hostileWorld) sendHostileQueries(t *testing.T, row admin.TableRow) {
	t.Helper()
	path, _ := w.request(row)
	for _, name := range row.Query {
		for _, text := range w.texts {
			query := url.Values{name: {text}}
			if row.Action == "series.show" && name != "metric" {
				query.Set("metric", "depth")
			}
			w.sendHostile(t, row.Method, path+"?"+query.Encode(), "")
		}
	}
	if slices.Contains(row.Query, "cursor") {
		for _, list := range cursorNames {
			for _, position := range w.positions {
				query := "?cursor=" + base64.RawURLEncoding.EncodeToString([]byte(list+":"+position))
				if status, answer := w.sendHostile(t, row.Method, path+query, ""); status < 400 &&
					!isText(position) {
					t.Errorf("%s %s with the cursor %s:%q: %s", row.Method, row.Pattern, list,
						position, bounded(answer))
				}
			}
		}
	}
	for _, query := range []string{"%zz=1", "a=%zz", "=1", "a;b=1", "\u00e4=1", "limit[]=1"} {
		if status, _ := w.sendHostile(t, row.Method, path+"?"+query, ""); status < 400 {
			t.Errorf("%s %s?%s is accepted: %d", row.Method, row.Pattern, query, status)
		}
	}
}

// takes finds the members that a route takes in its refusal of another.
var takes = regexp.MustCompile(`this route takes ([a-z_, ]+)`)

// sendHostileBodies sends bodies that make no sense, and hostile values of each member.
func (w *hostileWorld) sendHostileBodies(t *testing.T, row admin.TableRow) {
	t.Helper()
	path, good := w.request(row)
	if row.Method == http.MethodDelete {
		return
	}
	for _, body := range w.broken {
		if status, text := w.sendHostile(t, row.Method, path, body, "Content-Type",
			"application/json"); status < 400 {
			t.Errorf("%s %s takes %q: %s", row.Method, row.Pattern, bounded(body), text)
		}
	}
	if w.broken != nil {
		w.sendHostileTypes(t, row, path)
	}
	_, text := w.sendHostile(t, row.Method, path, `{"zzz":1}`, "Content-Type", "application/json")
	found := takes.FindStringSubmatch(text)
	if found == nil {
		return
	}
	for _, member := range strings.Split(found[1], ", ") {
		for _, value := range w.values {
			body := fmt.Sprintf(`{%q:%s}`, member, value)
			if rest, isObject := strings.CutPrefix(good, "{"); isObject &&
				!strings.Contains(good, `"`+member+`"`) {
				body = fmt.Sprintf(`{%q:%s,%s`, member, value, rest)
			}
			w.sendHostile(t, row.Method, path, body, "Content-Type", "application/json")
		}
	}
	if good == "" {
		return
	}
	twice := strings.TrimSuffix(good, "}") + "," + strings.TrimPrefix(good, "{")
	if status, text := w.sendHostile(t, row.Method, path, twice, "Content-Type",
		"application/json"); status < 400 {
		t.Errorf("%s %s takes members twice: %s", row.Method, row.Pattern, text)
	}
}

// sendHostileTypes sends bodies of types that no route takes.
func (w *hostileWorld) sendHostileTypes(t *testing.T, row admin.TableRow, path string) {
	t.Helper()
	for _, kind := range []string{"text/plain", "application/x-www-form-urlencoded",
		"multipart/form-data", "application/jsonp", "a/b/c", "application/json, text/plain"} {
		if status, _ := w.sendHostile(t, row.Method, path, `{"a":1}`, "Content-Type",
			kind); status != http.StatusUnsupportedMediaType {
			t.Errorf("%s %s as %s: got %d", row.Method, row.Pattern, kind, status)
		}
	}
	if status, _ := w.sendHostile(t, row.Method, path, `{"a":1}`, "Content-Encoding",
		"gzip"); status != http.StatusUnsupportedMediaType {
		t.Errorf("%s %s encoded: got %d", row.Method, row.Pattern, status)
	}
}
