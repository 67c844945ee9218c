package config

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/millrace/millrace/internal/setting"
)

// variablePrefix is the prefix of environment variables that may be meant as settings.
const variablePrefix = "MILLRACE_"

// findUnknownVariables returns a sentence about each variable that looks like a setting and is not
// one. It does not show values.
func (s *Settings) findUnknownVariables(environ, others []string) []string {
	return s.variableProblems(environ, others, "the environment variable %s is not a setting",
		false)
}

// MisspelledVariables returns a sentence about each variable that is most likely meant as a setting
// or as one of the others, for commands that read no settings.
func (s *Settings) MisspelledVariables(environ, others []string) []string {
	return s.variableProblems(environ, others, "the environment variable %s is not known", true)
}

// variableProblems reports the variables that are neither settings nor others; with onlySimilar,
// those of them that resemble one.
func (s *Settings) variableProblems(environ, others []string, format string,
	onlySimilar bool) []string {
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
		text := fmt.Sprintf(format, setting.Printable(setting.Shorten(name)))
		suggestion := s.similarVariable(name, others, onlySimilar)
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
func (s *Settings) similarVariable(name string, others []string,
	othersFirst bool) string {
	word := withoutSeparators(strings.TrimPrefix(name, variablePrefix))
	plain := map[string]string{}
	for _, other := range others {
		if !strings.HasSuffix(other, "_") {
			plain[withoutSeparators(strings.TrimPrefix(other, variablePrefix))] = other
		}
	}
	similar, ok := setting.Closest(word, slices.Collect(maps.Keys(plain)))
	key, isKey := s.SimilarKey(word)
	if !ok && !isKey {
		return ""
	}
	toKey := setting.EditDistance(word, withoutSeparators(key))
	toOther := setting.EditDistance(word, similar)
	closer := toKey < toOther || (toKey == toOther && !othersFirst)
	if !ok || (isKey && closer) {
		return envName(key)
	}
	return plain[similar]
}

// SimilarKey returns the setting that a word most likely means, with any separators between its
// parts: LISTEN, data-dir or RELAY__TOKEN.
func (s *Settings) SimilarKey(word string) (key string, ok bool) {
	plain := map[string]string{}
	var names []string
	for _, k := range s.keys {
		name := withoutSeparators(k.Name)
		plain[name] = k.Name
		names = append(names, name)
	}
	name, ok := setting.Closest(withoutSeparators(word), names)
	return plain[name], ok
}

var separators = regexp.MustCompile(`[._-]+`)

// withoutSeparators returns a name in lower case without dots, hyphens and underscores, so that
// spellings which differ in these alone compare equal.
func withoutSeparators(name string) string {
	return separators.ReplaceAllString(strings.ToLower(name), "")
}
