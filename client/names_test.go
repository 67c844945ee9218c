package client_test

import (
	"cmp"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// sdk is what a client has: the methods and the members of its types, in the words of Python.
type sdk struct{ methods, members map[string][]string }

// has reports whether a list of a type has a name, in this or another of the words for it.
func has(names []string, name string, others ...string) bool {
	return slices.Contains(names, name) || slices.ContainsFunc(others, func(other string) bool {
		return slices.Contains(names, other)
	})
}

var (
	acronym = regexp.MustCompile(`([A-Z]+)([A-Z][a-z])`)
	hump    = regexp.MustCompile(`([a-z0-9])([A-Z])`)
)

// snake turns a name into the one that Python has for it.
func snake(name string) string {
	return strings.ToLower(hump.ReplaceAllString(acronym.ReplaceAllString(name, "${1}_${2}"),
		"${1}_${2}"))
}

// sources are the texts of the files of a pattern, without tests.
func sources(t *testing.T, pattern string) (texts []string) {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatal(pattern, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(file, "_test.go") {
			texts = append(texts, string(text))
		}
	}
	return texts
}

// goSDK reads this package.
func goSDK(t *testing.T) sdk {
	t.Helper()
	s := sdk{map[string][]string{}, map[string][]string{}}
	for _, text := range sources(t, "*.go") {
		file, err := parser.ParseFile(token.NewFileSet(), "", text, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				if n.Recv != nil && n.Name.IsExported() {
					of := receiver(n.Recv.List[0].Type)
					s.methods[of] = append(s.methods[of], snake(n.Name.Name))
				}
			case *ast.TypeSpec:
				if st, ok := n.Type.(*ast.StructType); ok && n.Name.IsExported() {
					s.members[n.Name.Name] = exportedFields(st)
				}
			}
			return true
		})
	}
	return s
}

func receiver(of ast.Expr) string {
	if star, ok := of.(*ast.StarExpr); ok {
		of = star.X
	}
	name, _ := of.(*ast.Ident)
	return name.Name
}

func exportedFields(st *ast.StructType) (names []string) {
	for _, field := range st.Fields.List {
		for _, name := range field.Names {
			if name.IsExported() {
				names = append(names, snake(name.Name))
			}
		}
	}
	return names
}

// foreignSDK reads a client by the patterns of its classes, which have their name, their base and
// their body, of methods and of members.
func foreignSDK(t *testing.T, files, class, method, member string) sdk {
	t.Helper()
	s := sdk{map[string][]string{}, map[string][]string{}}
	bases := map[string]string{}
	for _, text := range sources(t, files) {
		for _, found := range regexp.MustCompile(class).FindAllStringSubmatch(text, -1) {
			name, base, body := found[1], found[2], found[3]
			bases[name] = base
			for _, one := range regexp.MustCompile(method).FindAllStringSubmatch(body, -1) {
				s.methods[name] = append(s.methods[name], snake(one[1]))
			}
			for _, one := range regexp.MustCompile(member).FindAllStringSubmatch(body, -1) {
				s.members[name] = append(s.members[name], snake(one[1]))
			}
		}
	}
	for name, base := range bases {
		s.members[name] = append(s.members[name], s.members[base]...)
		s.methods[name] = append(s.methods[name], s.methods[base]...)
	}
	return s
}

func pythonSDK(t *testing.T) sdk {
	return foreignSDK(t, "../clients/python/millrace/*.py",
		`(?m)^class (\w+)(?:\((\w*)[^)]*\))?:\n((?: .*\n|\n)*)`,
		`(?m)^    def ([a-z]\w*)\(`, `(?m)^(?:    |        |        self\.)([a-z]\w*)(?::| =)`)
}

func typeScriptSDK(t *testing.T) sdk {
	return foreignSDK(t, "../clients/typescript/src/*.ts",
		`(?ms)^export (?:class|interface) (\w+)(?:<[^{]*?>)?(?: extends (\w+))?[^{\n]*\{\n(.*?)^\}`,
		`(?m)^  (?:async )?\*?([a-z]\w*)(?:<[^>]*>)?\(`, `(?m)^  (?:readonly )?([a-z]\w*)\??:`)
}

// goOnly are the methods that this client alone has, with what the table of docs/clients.md says of
// them.
var goOnly = map[string]string{
	"Admin.audit":                  "the audit",
	"Admin.bulk_operation":         "bulk operations",
	"Admin.bulk_operations":        "bulk operations",
	"Admin.cancel_bulk_operation":  "bulk operations",
	"Admin.pause_bulk_operation":   "bulk operations",
	"Admin.preview_bulk_operation": "bulk operations",
	"Admin.resume_bulk_operation":  "bulk operations",
	"Admin.start_bulk_operation":   "bulk operations",
	"Admin.clear_queue":            "clearing a queue",
	"Admin.client":                 "clients and their keys",
	"Admin.clients":                "clients and their keys",
	"Admin.revoke_api_key":         "clients and their keys",
	"Admin.set_client":             "clients and their keys",
	"Admin.create_login_code":      "links of the console",
	"Admin.create_webhook":         "webhooks and deliveries",
	"Admin.delete_webhook":         "webhooks and deliveries",
	"Admin.deliveries":             "webhooks and deliveries",
	"Admin.disable_webhook":        "webhooks and deliveries",
	"Admin.enable_webhook":         "webhooks and deliveries",
	"Admin.replay_deliveries":      "webhooks and deliveries",
	"Admin.rotate_webhook_secret":  "webhooks and deliveries",
	"Admin.set_webhook":            "webhooks and deliveries",
	"Admin.test_webhook":           "webhooks and deliveries",
	"Admin.webhook":                "webhooks and deliveries",
	"Admin.webhook_event_types":    "webhooks and deliveries",
	"Admin.webhooks":               "webhooks and deliveries",
	"Admin.discard_inbox_request":  "the inbox",
	"Admin.inbox":                  "the inbox",
	"Admin.inbox_request":          "the inbox",
	"Admin.retry_inbox_request":    "the inbox",
	"Admin.drain_node":             "draining a node",
	"Admin.resume_node":            "draining a node",
	"Admin.rotate_token":           "rotating tokens",
	"Admin.series":                 "series",
	"Admin.settings":               "settings",
	"Admin.watch":                  "changes as they come",
}

// The clients for Python and TypeScript have the methods and the members of this one. What they do
// not have is in the table of docs/clients.md; TestForeignNames is the other way round.
func TestNamesOfTheClients(t *testing.T) {
	t.Parallel()
	table := differences(t)
	own := goSDK(t)
	for language, other := range map[string]sdk{"Python": pythonSDK(t),
		"TypeScript": typeScriptSDK(t)} {
		for _, of := range classes {
			if len(own.methods[of]) == 0 || len(other.methods[of]) == 0 {
				t.Errorf("%s: no methods of %s", language, of)
			}
			for _, name := range own.methods[of] {
				isThere := slices.Contains(other.methods[of], name)
				known := goOnly[of+"."+name]
				if of+"."+name == "Client.close_idle_connections" && language == "TypeScript" {
					known = "those of `fetch`, which closes them by itself"
				}
				switch {
				case isThere && known != "":
					t.Errorf("%s has %s.%s, and the test says that it has not", language, of, name)
				case !isThere && (known == "" || !strings.Contains(table, known)):
					t.Errorf("%s has no %s.%s, and docs/clients.md does not say so", language, of,
						name)
				}
			}
		}
	}
}

// tags reads the names in JSON of the fields of this package's types, by the words of Python.
func tags(t *testing.T) map[string]map[string]string {
	t.Helper()
	of := map[string]map[string]string{}
	structs := regexp.MustCompile(`(?ms)^type (\w+) struct \{\n(.*?)^\}`)
	field := regexp.MustCompile("(?m)^\t([A-Z]\\w*) .*`json:\"(\\w+)[,\"]")
	for _, text := range sources(t, "*.go") {
		for _, found := range structs.FindAllStringSubmatch(text, -1) {
			of[found[1]] = map[string]string{}
			for _, one := range field.FindAllStringSubmatch(found[2], -1) {
				of[found[1]][snake(one[1])] = one[2]
			}
		}
	}
	return of
}

// A member of a class of Python has the name in JSON that the field of Go has. In TypeScript the
// tests compare answers of a server with the interfaces.
func TestWireNamesOfPython(t *testing.T) {
	t.Parallel()
	own, common := tags(t), 0
	classes := regexp.MustCompile(`(?m)^class (\w+)(?:\([^)]*\))?:\n((?: .*\n|\n)*)`)
	member := regexp.MustCompile(`(?m)^    ([a-z]\w*): [^=\n]*(?:= named\(\s*"(\w+)")?`)
	for _, text := range sources(t, "../clients/python/millrace/*.py") {
		for _, class := range classes.FindAllStringSubmatch(text, -1) {
			for _, one := range member.FindAllStringSubmatch(class[2], -1) {
				want := own[class[1]][strings.TrimSuffix(one[1], "_time")]
				if tag := own[class[1]][one[1]]; tag != "" {
					want = tag
				}
				if want == "" {
					continue
				}
				common++
				if wire := cmp.Or(one[2], one[1]); wire != want {
					t.Errorf("%s.%s of Python is %s in JSON, want %s", class[1], one[1], wire, want)
				}
			}
		}
	}
	if common < 150 {
		t.Errorf("%d members have the names of Go", common)
	}
}

// Values that are sent and answered have the same members in all clients, under the same names but
// for those that docs/clients.md lists.
func TestMembersOfTheClients(t *testing.T) {
	t.Parallel()
	renamed := map[string]string{"type": "error_type", "from": "from_time", "to": "to_time",
		"err": "error", "http_client": "fetch"}
	lists := []string{"page_size"} // members of the options of a call in TypeScript
	own := goSDK(t)
	for language, other := range map[string]sdk{"Python": pythonSDK(t),
		"TypeScript": typeScriptSDK(t)} {
		common := 0
		for _, of := range slices.Sorted(maps.Keys(own.members)) {
			names := other.members[of]
			isValue := !slices.Contains([]string{"Error", "JobError", "Worker", "JobWorker"}, of)
			if names == nil || !isValue {
				continue
			}
			common++
			for _, name := range own.members[of] {
				isOfList := language == "TypeScript" && slices.Contains(lists, name)
				if !isOfList && !has(names, name, renamed[name], name+"_id") {
					t.Errorf("%s has no %s.%s", language, of, name)
				}
			}
		}
		if common < 50 {
			t.Errorf("%s: %d types have the names of Go", language, common)
		}
	}
}
