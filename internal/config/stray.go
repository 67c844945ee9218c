package config

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// strayPrefix begins the names of environment variables that may be meant as settings.
const strayPrefix = "MILLRACE_"

// strays is a sentence about each variable that looks like a setting and is none. Values are not shown.
func strays(environ, others []string) []string {
	known := func(name string) bool {
		return slices.ContainsFunc(others, func(other string) bool {
			return name == other || (strings.HasSuffix(other, "_") && strings.HasPrefix(name, other))
		})
	}
	var told []string
	for _, pair := range environ {
		name, _, _ := strings.Cut(pair, "=")
		if !strings.HasPrefix(name, strayPrefix) || strings.HasPrefix(name, envPrefix) || known(name) {
			continue
		}
		text := fmt.Sprintf("the environment variable %s is no setting", printable(shorten(name)))
		if key, ok := KeyLike(strings.TrimPrefix(name, strayPrefix)); ok {
			text += "; did you mean " + envName(key) + "?"
		}
		told = append(told, text)
	}
	slices.Sort(told)
	return slices.Compact(told)
}

// KeyLike finds the setting that a word most likely means, whatever stands between its parts: LISTEN, data-dir or
// RELAY__TOKEN.
func KeyLike(word string) (key string, ok bool) {
	plain := map[string]string{}
	var names []string
	for _, k := range keys {
		name := withoutSeparators(k.name)
		plain[name] = k.name
		names = append(names, name)
	}
	name, ok := Closest(withoutSeparators(word), names)
	return plain[name], ok
}

var separators = regexp.MustCompile(`[._-]+`)

func withoutSeparators(name string) string {
	return separators.ReplaceAllString(strings.ToLower(name), "")
}

// Closest finds the name that a word was most likely meant to be; ok tells that it is close enough to be named.
func Closest(word string, names []string) (name string, ok bool) {
	word = strings.ToLower(shorten(word))
	name = nearest(word, names)
	return name, name != "" && distance(word, strings.ToLower(name)) <= min(2, len(word)/3)
}
