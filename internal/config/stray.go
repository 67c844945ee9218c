package config

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// strayPrefix begins the names of environment variables that may be meant as settings.
const strayPrefix = "MILLRACE_"

// strays is a sentence about each variable that looks like a setting and is none. Values are not shown.
func strays(environ, others []string) []string {
	return strayTold(environ, others, "the environment variable %s is no setting", false)
}

// Misspelt is a sentence about each variable that is most likely meant as a setting or as one of the others, for
// commands that read no settings.
func Misspelt(environ, others []string) []string {
	return strayTold(environ, others, "the environment variable %s is not known", true)
}

// strayTold tells of the variables that are neither settings nor others, or of those alone that are like one.
func strayTold(environ, others []string, said string, likeOne bool) []string {
	known := func(name string) bool {
		return slices.ContainsFunc(others, func(other string) bool {
			return name == other || (strings.HasSuffix(other, "_") && strings.HasPrefix(name, other))
		})
	}
	var told []string
	for _, pair := range environ {
		name, value, _ := strings.Cut(pair, "=")
		if value == "" || !strings.HasPrefix(name, strayPrefix) || strings.HasPrefix(name, envPrefix) || known(name) {
			continue
		}
		text := fmt.Sprintf(said, printable(shorten(name)))
		meant := variableLike(name, others, likeOne)
		if meant != "" {
			text += "; did you mean " + meant + "?"
		}
		if meant != "" || !likeOne {
			told = append(told, text)
		}
	}
	slices.Sort(told)
	return slices.Compact(told)
}

// variableLike finds the variable that a name most likely means, empty for none: that of a setting or one of the
// others, which come first where both are as close and othersFirst says so.
func variableLike(name string, others []string, othersFirst bool) string {
	word := withoutSeparators(strings.TrimPrefix(name, strayPrefix))
	plain := map[string]string{}
	for _, other := range others {
		if !strings.HasSuffix(other, "_") {
			plain[withoutSeparators(strings.TrimPrefix(other, strayPrefix))] = other
		}
	}
	near, ok := Closest(word, slices.Collect(maps.Keys(plain)))
	key, isKey := KeyLike(word)
	if !ok && !isKey {
		return ""
	}
	toKey, toOther := distance(word, withoutSeparators(key)), distance(word, near)
	closer := toKey < toOther || (toKey == toOther && !othersFirst)
	if !ok || (isKey && closer) {
		return envName(key)
	}
	return plain[near]
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
	return name, name != "" && distance(word, strings.ToLower(name)) <= min(2, (len(word)+1)/3)
}
