package fetchbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/millrace/millrace/internal/contract/fetchbox/handler"
	"github.com/millrace/millrace/internal/egress"
	"github.com/millrace/millrace/internal/external"
	"github.com/millrace/millrace/internal/object/name"
	"github.com/millrace/millrace/internal/setting"
)

// The sections with a name for each job type (FB-068) and for each pool of proxies (G-FB-34).
const (
	typesSection = "job_types"
	poolsSection = "proxy.pools"
)

// defaultHandler is the handler of job types that name none; a type of the same name is always
// registered (G-FB-34).
const defaultHandler = "default"

// Type is a job type as the settings define it (FB-068).
type Type struct {
	Handler        string                    // "" is default
	DefaultHeaders map[string]setting.Secret // some are credentials
	Proxy          handler.Proxy             // its zero value is none
	Bucket         string                    // of downloads; "" is the default bucket
	KeyPrefix      string                    // of downloads; "" is resources/TYPE/
	Options        map[string]any            // the handler's, and maxParallelOption

	external.Settings          // of the handlers exec and http
	Events            []string // that these get
}

// newType is a job type whose section sets nothing. An answer of its handler may have a whole
// manifest.
func newType() *Type {
	t := &Type{Handler: defaultHandler, Settings: external.Defaults(),
		Events: handler.DefaultEvents}
	t.MaxOutput = 16 << 20
	return t
}

// maxParallelOption is the option of every handler that limits downloads.
const maxParallelOption = "max_parallel_downloads"

// MaxParallel is how many downloads of the type may run at a time, over all nodes (FB-074); 0 is no
// limit.
func (t *Type) MaxParallel() int {
	n, _ := t.Options[maxParallelOption].(int64)
	return int(n)
}

// proxy is the proxy of the tasks that name none; nil is a direct connection.
func (t *Type) proxy() *handler.Proxy {
	if t.Proxy.Primary == "" && len(t.Proxy.Fallbacks) == 0 {
		return nil
	}
	return &t.Proxy
}

// keys declares the settings of one job type, relative to its section.
func (t *Type) keys() []setting.Key {
	return slices.Concat([]setting.Key{
		setting.Define("handler", "",
			"Name of a handler that is compiled in; exec (the server runs command) or http (it calls url).",
			setting.Text(&t.Handler, "a name", func(s string) bool { return s != "" && isName(s) })),
		setting.Define("default_headers", "",
			"Headers of every download, unless the resource has its own.",
			setting.Secrets(&t.DefaultHeaders, "headers", `{ Accept = "image/*" }`, isHeader)),
		setting.Define("proxy.primary", "",
			"Pool of proxies for downloads; none when empty.",
			setting.Text(&t.Proxy.Primary, "a name", isName)),
		setting.Define("proxy.fallbacks", "",
			"Pools that are used one after another when proxy.primary fails.",
			poolNames(&t.Proxy.Fallbacks)),
		setting.Define("storage.bucket", "", "Bucket of downloads; objects.bucket when empty.",
			setting.OptionalBucket(&t.Bucket)),
		setting.Define("storage.key_prefix", "",
			"Prefix of the keys of downloads; resources/NAME/ when empty.",
			setting.Text(&t.KeyPrefix, "the beginning of a key, such as gallery/, without a / in "+
				"front and without .. in it", isKeyPrefix)),
		setting.Define("options", "",
			"Options of the handler; max_parallel_downloads limits the concurrent downloads, over all nodes.",
			options(&t.Options)),
		setting.Define("events", "",
			"Events that the handlers exec and http get; adjust is sent for every download.",
			setting.Names(&t.Events, handler.Events...)),
	}, t.Settings.Keys())
}

// Pool is a pool of proxies.
type Pool struct {
	Primary   []setting.Secret // URLs, some with a password
	Fallbacks []string         // pools
}

func newPool() *Pool { return &Pool{} }

// keys declares the settings of one pool, relative to its section.
func (p *Pool) keys() []setting.Key {
	return []setting.Key{
		setting.Define("primary", "",
			"URLs of the pool's proxies: http or socks5, optionally with user and password.",
			proxyURLs(&p.Primary)),
		setting.Define("fallbacks", "", "Pools that are used one after another when all of primary fail.",
			poolNames(&p.Fallbacks)),
	}
}

// validPool reports whether a text can be the name of a pool: parts between slashes, as in
// proxies/eu-primary (G-FB-34).
func validPool(s string) bool {
	for part := range strings.SplitSeq(s, "/") {
		if part == "" || strings.Trim(part, setting.NameCharacters+".-") != "" {
			return false
		}
	}
	return len(s) <= 64
}

// isName reports whether a text can name something that is defined elsewhere, or is empty.
func isName(s string) bool {
	return len(s) <= 200 && !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' })
}

// isKeyPrefix reports whether keys of objects can begin with a text: whole segments, or empty.
func isKeyPrefix(s string) bool {
	return len(s) <= 500 && (s == "" || name.ValidKey(strings.TrimSuffix(s, "/")))
}

// isHeader reports whether a header can be sent.
func isHeader(name, text string) bool {
	return httpguts.ValidHeaderFieldName(name) && httpguts.ValidHeaderFieldValue(text)
}

// poolNames is a list of names of pools, each once; it may be empty.
func poolNames(p *[]string) setting.Value {
	return setting.Value{
		Set: func(in setting.Input) error {
			names, ok := in.List()
			if in.IsText && in.Raw == "" {
				names = nil
			}
			for i, n := range names {
				ok = ok && validPool(n) && !slices.Contains(names[:i], n)
			}
			if !ok {
				return errors.New(`expected a list of names such as ["a", "b"], each once`)
			}
			*p = names
			return nil
		},
		Show: func() string { return strings.Join(*p, ",") },
	}
}

// proxyURLs is a list of proxies, at least one. The URLs are secrets, since they may hold
// passwords; these are masked where it is shown.
func proxyURLs(p *[]setting.Secret) setting.Value {
	return setting.Value{
		Set: func(in setting.Input) error {
			const expected = `expected a list of http or socks5 URLs such as ` +
				`["http://USER:PASSWORD@HOST:PORT"], without path and query`
			list, ok := in.List()
			if !ok || len(list) == 0 {
				return errors.New(expected)
			}
			proxies := make([]setting.Secret, len(list))
			for i, s := range list {
				if err := checkProxy(s); err != nil {
					return fmt.Errorf("%s; %w", expected, err)
				}
				proxies[i] = setting.NewSecret(s)
			}
			*p = proxies
			return nil
		},
		Show: func() string {
			all := make([]string, len(*p))
			for i, proxy := range *p {
				all[i] = setting.MaskURL(proxy.Reveal())
			}
			return strings.Join(all, ",")
		},
	}
}

// checkProxy returns why a text cannot be the URL of a proxy. It does not repeat the text, which
// may hold a password.
func checkProxy(s string) error {
	u, err := egress.ParseProxy(s)
	if err != nil {
		return err
	}
	if !setting.ValidAddress(u.Host) {
		return errors.New("the proxy's URL has no valid host and port")
	}
	return nil
}

// options is a table that a handler reads. Only the value of maxParallelOption is checked here:
// checkTypes checks the names, and the handler its own values when it is made (FB-072).
func options(p *map[string]any) setting.Value {
	return setting.Value{
		Set: func(in setting.Input) error {
			table, ok := in.Raw.(map[string]any)
			if !ok {
				return errors.New("expected a table such as { " + maxParallelOption + " = 8 }")
			}
			if limit, has := table[maxParallelOption]; has {
				if n, whole := limit.(int64); !whole || n < 1 || n > 10_000 {
					return errors.New("expected " + maxParallelOption +
						" to be a whole number from 1 to 10000")
				}
			}
			*p = table
			return nil
		},
		Show: func() string { return maskedJSON(*p) },
		Table: &setting.Table{Typed: true, Entries: func() map[string]any {
			if *p == nil {
				return map[string]any{}
			}
			return maps.Clone(*p)
		}},
	}
}

// maskedJSON is a table with its texts masked, which may be credentials.
func maskedJSON(table map[string]any) string {
	if len(table) == 0 {
		return ""
	}
	text, err := json.Marshal(maskTexts(table))
	if err != nil {
		return setting.Masked
	}
	return string(text)
}

// maskTexts returns a copy of a decoded value in which every text is masked. Numbers, truth values
// and the names of members stay.
func maskTexts(v any) any {
	switch v := v.(type) {
	case string:
		return setting.Masked
	case []any:
		all := make([]any, len(v))
		for i := range v {
			all[i] = maskTexts(v[i])
		}
		return all
	case map[string]any:
		all := make(map[string]any, len(v))
		for k := range v {
			all[k] = maskTexts(v[k])
		}
		return all
	}
	return v
}

// sortedNames returns the keys of a table in order, so that problems are reported in the same order
// each time.
func sortedNames[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
