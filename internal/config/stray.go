package config

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// variablePrefix is the prefix of environment variables that may be meant as settings.
const variablePrefix = "MILLRACE_"

// unknownVariables returns a sentence about each variable that looks like a setting and is none. It
// does not show values.
func unknownVariables(environ, otherVariables []string) []string {
	return variableProblems(environ, otherVariables, "the environment variable %s is no setting",
		false)
}

// MisspelledVariables returns a sentence about each variable that is most likely meant as a setting
// or as one of the others, for commands that read no settings.
func MisspelledVariables(environ, others []string) []string {
	return variableProblems(environ, others, "the environment variable %s is not known", true)
}

// variableProblems reports the variables that are neither settings nor others; with onlySimilar,
// those of them that resemble one.
func variableProblems(environ, others []string, format string, onlySimilar bool) []string {
	isOther := func(name string) bool {
		return slices.ContainsFunc(others, func(other string) bool {
			return name == other || (strings.HasSuffix(other, "_") &&
				strings.HasPrefix(name, other))
		})
	}
	var messages []string
	for _, pair := range environ {
		name, value, _ := strings.Cut(pair, "=")
		if value == "" || !strings.HasPrefix(name, variablePrefix) ||
			strings.HasPrefix(name, envPrefix) || isOther(name) {
			continue
		}
		text := fmt.Sprintf(format, printable(shorten(name)))
		suggestion := similarVariable(name, others, onlySimilar)
		if suggestion != "" {
			text += "; did you mean " + suggestion + "?"
		}
		if suggestion != "" || !onlySimilar {
			messages = append(messages, text)
		}
	}
	slices.Sort(messages)
	return slices.Compact(messages)
}

// similarVariable returns the variable that a name most likely means, "" for none: that of a
// setting or one of the others. Where both are equally similar, othersFirst decides.
func similarVariable(name string, others []string, othersFirst bool) string {
	word := withoutSeparators(strings.TrimPrefix(name, variablePrefix))
	plain := map[string]string{}
	for _, other := range others {
		if !strings.HasSuffix(other, "_") {
			plain[withoutSeparators(strings.TrimPrefix(other, variablePrefix))] = other
		}
	}
	similar, ok := Closest(word, slices.Collect(maps.Keys(plain)))
	key, isKey := SimilarKey(word)
	if !ok && !isKey {
		return ""
	}
	toKey, toOther := editDistance(word, withoutSeparators(key)), editDistance(word, similar)
	closer := toKey < toOther || (toKey == toOther && !othersFirst)
	if !ok || (isKey && closer) {
		return envName(key)
	}
	return plain[similar]
}

// SimilarKey returns the setting that a word most likely means, with any separators between its
// parts: LISTEN, data-dir or RELAY__TOKEN.
func SimilarKey(word string) (key string, ok bool) {
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

// Closest returns the name that a word was most likely meant to be. ok reports that it is similar
// enough for a hint.
func Closest(word string, names []string) (name string, ok bool) {
	word = strings.ToLower(shorten(word))
	name = nearest(word, names)
	return name, name != "" && editDistance(word, strings.ToLower(name)) <= min(2, (len(word)+1)/3)
}
