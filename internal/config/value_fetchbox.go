package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/millrace/millrace/internal/object/name"
)

// validPool reports whether a text can be the name of a pool: parts between slashes, as in
// proxies/eu-primary (G-FB-34).
func validPool(s string) bool {
	for part := range strings.SplitSeq(s, "/") {
		if !validName(part) {
			return false
		}
	}
	return len(s) <= 64
}

// validName reports whether a text can be one part of a pool's name.
func validName(s string) bool {
	return s != "" && len(s) <= 64 && strings.Trim(s, nameLetters+".-") == ""
}

// validJobType tells whether a text can be a job type (G-FB-15).
func validJobType(s string) bool { return validName(s) && s[0] != '.' }

// nameValue is the name of something that is defined elsewhere.
type nameValue struct {
	p        *string
	optional bool
}

func (v nameValue) set(in input) error {
	s, ok := in.textValue()
	if !ok || len(s) > 200 || strings.ContainsFunc(s, func(r rune) bool {
		return r <= ' ' || r > '~'
	}) || (s == "" && !v.optional) {
		return errors.New("expected a name")
	}
	*v.p = s
	return nil
}

func (v nameValue) show() string { return *v.p }

// listValue is a list of names, each once; it may be empty.
type listValue struct{ p *[]string }

func (v listValue) set(in input) error {
	names, ok := in.list()
	if in.isText && in.raw == "" {
		names = nil
	}
	for i, n := range names {
		ok = ok && validPool(n) && !slices.Contains(names[:i], n)
	}
	if !ok {
		return errors.New(`expected a list of names such as ["a", "b"], each once`)
	}
	*v.p = names
	return nil
}

func (v listValue) show() string { return strings.Join(*v.p, ",") }

// bucketValue is the name of a bucket.
type bucketValue struct {
	p        *string
	optional bool
}

func (v bucketValue) set(in input) error {
	s, ok := in.textValue()
	if !ok || (!name.ValidBucket(s) && (s != "" || !v.optional)) {
		return errors.New("expected 3 to 63 lower-case letters, digits, dots and hyphens")
	}
	*v.p = s
	return nil
}

func (v bucketValue) show() string { return *v.p }

// prefixValue is what keys of objects begin with: whole segments, or empty.
type prefixValue struct{ p *string }

func (v prefixValue) set(in input) error {
	s, ok := in.textValue()
	if !ok || len(s) > 500 || (s != "" && !name.ValidKey(strings.TrimSuffix(s, "/"))) {
		return errors.New("expected the beginning of a key, such as gallery/, without a / in " +
			"front and without .. in it")
	}
	*v.p = s
	return nil
}

func (v prefixValue) show() string { return *v.p }

// objectsValue is the address of an S3 store. Its keys do not belong in it: it is shown.
type objectsValue struct{ p *string }

// s3Members are what the address of an S3 store may say.
var s3Members = []string{"region", "endpoint", "profile", "role", "anonymous", "use_path_style",
	"disable_https", "hostname_immutable",
	"accelerate", "dualstack", "fips", "ssetype", "kmskeyid", "request_checksum_calculation",
	"response_checksum_validation"}

func (v objectsValue) set(in input) error {
	s, ok := in.textValue()
	if !ok || (s != "" && !validObjects(s)) {
		return errors.New("expected s3://?region=REGION&endpoint=URL, or what else there is to " +
			"say out of " + strings.Join(s3Members, ", ") +
			"; the bucket stands in objects.bucket, and keys where AWS clients look for them, such as AWS_ACCESS_KEY_ID")
	}
	*v.p = s
	return nil
}

func validObjects(s string) bool {
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "s3" || u.Host != "" || u.User != nil || u.Path != "" ||
		u.Fragment != "" || !strings.HasPrefix(s, "s3://") {
		return false
	}
	members, err := url.ParseQuery(u.RawQuery)
	for member, values := range members {
		if !slices.Contains(s3Members, member) || len(values) != 1 || values[0] == "" ||
			(member == "endpoint" && !validServiceURL(values[0])) {
			return false
		}
	}
	return err == nil
}

func (v objectsValue) show() string { return *v.p }

// streamsValue is the addresses of a NATS cluster. The token does not belong in them: they are
// shown.
type streamsValue struct{ p *string }

func (v streamsValue) set(in input) error {
	s, ok := in.textValue()
	for address := range strings.SplitSeq(s, ",") {
		scheme, host, _ := strings.Cut(strings.TrimSpace(address), "://")
		ok = ok && (scheme == "nats" || scheme == "tls") && validAddress(host) && host[0] != ':'
	}
	if (!ok && s != "") || in.raw != s {
		return errors.New("expected nats://HOST:PORT or tls://HOST:PORT, several divided by " +
			"commas; the token stands in stream.token")
	}
	*v.p = s
	return nil
}

func (v streamsValue) show() string { return *v.p }

// proxiesValue is a list of proxies, at least one.
type proxiesValue struct{ p *[]Secret }

func (v proxiesValue) set(in input) error {
	list, ok := in.list()
	if !ok || len(list) == 0 || slices.ContainsFunc(list, func(s string) bool {
		return !validProxy(s)
	}) {
		return errors.New(`expected a list of http, https or socks5 URLs such as ["http://USER:PASSWORD@HOST:PORT"], without path and query`)
	}
	proxies := make([]Secret, len(list))
	for i, s := range list {
		proxies[i] = NewSecret(s)
	}
	*v.p = proxies
	return nil
}

func validProxy(s string) bool {
	u, err := url.Parse(s)
	if err != nil {
		return false
	}
	return slices.Contains([]string{"http", "https", "socks5"}, u.Scheme) &&
		validAddress(u.Host) && u.Hostname() != "" &&
		(u.Path == "" || u.Path == "/") && !strings.ContainsAny(s, "?#")
}

func (v proxiesValue) show() string {
	all := make([]string, len(*v.p))
	for i, p := range *v.p {
		all[i] = maskURL(p.Reveal())
	}
	return strings.Join(all, ",")
}

// headersValue is a table of headers.
type headersValue struct{ p *map[string]Secret }

func (v headersValue) table() map[string]any {
	table := map[string]any{}
	for header, text := range *v.p {
		table[header] = text.Reveal()
	}
	return table
}

func (headersValue) entry(text string) any { return text }

func (v headersValue) set(in input) error {
	table, ok := in.raw.(map[string]any)
	if !ok {
		return errors.New(`expected a table of headers such as { Accept = "image/*" }`)
	}
	headers := map[string]Secret{}
	for header, raw := range table {
		text, ok := raw.(string)
		if !ok || !httpguts.ValidHeaderFieldName(header) || !httpguts.ValidHeaderFieldValue(text) {
			return fmt.Errorf("expected headers with text; %s is none", quote(header))
		}
		headers[header] = NewSecret(text)
	}
	*v.p = headers
	return nil
}

func (v headersValue) show() string {
	var all []string
	for _, header := range sortedNames(*v.p) {
		all = append(all, header+": "+mask)
	}
	return strings.Join(all, ", ")
}

// optionsValue is a table that a handler makes sense of.
type optionsValue struct{ p *map[string]any }

func (v optionsValue) table() map[string]any {
	if *v.p == nil {
		return map[string]any{}
	}
	return maps.Clone(*v.p)
}

// entry reads text as a file would have it; what is nothing there is a string.
func (optionsValue) entry(text string) any {
	tree, err := (&parser{}).Unmarshal([]byte("entry = " + text))
	if err != nil || len(tree) != 1 || tree["entry"] == nil {
		return text
	}
	return tree["entry"]
}

func (v optionsValue) set(in input) error {
	table, ok := in.raw.(map[string]any)
	if !ok {
		return errors.New("expected a table such as { " + maxParallel + " = 8 }")
	}
	if limit, has := table[maxParallel]; has {
		if n, whole := limit.(int64); !whole || n < 1 || n > 10_000 {
			return errors.New("expected " + maxParallel + " to be a whole number from 1 to 10000")
		}
	}
	*v.p = table
	return nil
}

// show masks text, which may be a credential.
func (v optionsValue) show() string {
	if len(*v.p) == 0 {
		return ""
	}
	text, err := json.Marshal(maskTexts(*v.p))
	if err != nil {
		return mask
	}
	return string(text)
}

func maskTexts(v any) any {
	switch v := v.(type) {
	case string:
		return mask
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
