package setting

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// splitURL cuts at the same places for masking and for checking: scheme, user:password, hosts, and
// from the path on. It does without net/url, which refuses several hosts and whose errors repeat
// the URL.
func splitURL(s string) (scheme, user, hosts, tail string, ok bool) {
	scheme, rest, ok := strings.Cut(s, "://")
	if !ok || scheme == "" || strings.Trim(scheme,
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+-.") != "" {
		return "", "", "", "", false
	}
	hosts = rest
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		hosts, tail = rest[:i], rest[i:]
	}
	if i := strings.LastIndexByte(hosts, '@'); i >= 0 {
		user, hosts = hosts[:i+1], hosts[i+1:]
	}
	return scheme, user, hosts, tail, true
}

// MaskURL replaces the password of a URL by ***. Where an unescaped / ? # or @ in the password
// could have shifted the parts, it masks everything after the scheme.
func MaskURL(s string) string {
	scheme, user, hosts, tail, ok := splitURL(s)
	if !ok {
		return Masked
	}
	if strings.ContainsAny(tail, "@#") || (user == "" && !validHosts(hosts)) {
		return scheme + "://" + Masked
	}
	if name, _, found := strings.Cut(user, ":"); found {
		user = name + ":" + Masked + "@"
	}
	path, query, found := strings.Cut(tail, "?")
	if !found {
		return scheme + "://" + user + hosts + path
	}
	pairs := strings.Split(query, "&")
	for i, pair := range pairs {
		name, _, _ := strings.Cut(pair, "=")
		plain, err := url.QueryUnescape(pair) // the whole of it: some readers divide at ; too
		if err != nil || strings.Contains(strings.ToLower(plain), "pass") {
			pairs[i] = name + "=" + Masked
		}
	}
	return scheme + "://" + user + hosts + path + "?" + strings.Join(pairs, "&")
}

// maskStore shows a store as far as it holds no password: a word such as sqlite, or a URL without
// it.
func maskStore(s string) string {
	word := strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789") == ""
	if word && len(s) <= 16 {
		return s
	}
	return MaskURL(s)
}

// MaskUnknown masks texts that look like credentials in settings that are not secret.
func MaskUnknown(s string) string {
	switch lower := strings.ToLower(s); {
	case strings.Contains(s, "://"):
		return MaskURL(s)
	case strings.Contains(s, "-----BEGIN"), strings.Contains(s, "@"),
		strings.Contains(lower, "password"):
		return Masked
	}
	return s
}

// validStoreURL checks what would otherwise fail late, in an error that repeats the password.
func validStoreURL(s string, schemes []string) bool {
	scheme, user, hosts, tail, ok := splitURL(s)
	if !ok || !slices.Contains(schemes, scheme) || user+hosts+tail == "" {
		return false
	}
	if strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		return false
	}
	if strings.Contains(strings.TrimSuffix(user, "@"), "@") {
		return false
	}
	if _, err := url.PathUnescape(user); err != nil {
		return false
	}
	path, query, _ := strings.Cut(tail, "?")
	if _, err := url.ParseQuery(query); err != nil {
		return false
	}
	return !strings.ContainsAny(path, "@#") && !strings.Contains(query, "#") && validHosts(hosts)
}

// validHosts checks host[:port][,host[:port]…]; an empty one is for a URL that names its host in
// the query.
func validHosts(hosts string) bool {
	for host := range strings.SplitSeq(hosts, ",") {
		name, port, found := strings.Cut(host[strings.LastIndexByte(host, ']')+1:], ":")
		if _, err := strconv.ParseUint(port, 10, 16); found && err != nil {
			return false
		}
		if strings.ContainsAny(name, "%[]") {
			return false
		}
	}
	return true
}
