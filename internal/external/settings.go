package external

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/setting"
)

// A handler outside of the server is configured where what it handles is: below the section of a
// queue or a job type, with the same settings for all contracts. These declare them with limits
// that hold by default, as a program that is given no limit of its own would have that of the
// machine.

// The kinds of handlers, as the setting handler of a queue or job type has them.
const (
	Exec = "exec"
	HTTP = "http"
)

// Kinds are the kinds of handlers.
var Kinds = []string{Exec, HTTP}

// Settings say which program or URL is called, and within which limits.
type Settings struct {
	Command     []string                  // of the kind exec, as are the next four
	Directory   string                    // where it runs; empty: an empty directory of its own
	Environment map[string]setting.Secret // beside the variables of the call
	Memory      int64                     // of each process, in bytes
	MaxOutput   int64                     // of the answer, in bytes
	URL         string                    // of the kind http, as is the next one
	Secret      setting.Secret            // signs the requests; empty: they are not signed
	Timeout     time.Duration             // of one call
}

// Defaults are the settings for which nothing is set.
func Defaults() Settings {
	return Settings{Memory: 512 << 20, MaxOutput: 1 << 20, Timeout: 30 * time.Second}
}

// maxTimeout bounds a call. A node that stops ends it earlier.
const maxTimeout = 24 * time.Hour

// Keys declares the settings, relative to the section of the queue or job type.
func (s *Settings) Keys() []setting.Key {
	return []setting.Key{
		setting.Define("command", "",
			"Program of the handler exec and its arguments, which gets each call on its standard input.",
			command(&s.Command)),
		setting.Define("directory", "",
			"Working directory of command; an empty one for each call when empty.",
			setting.Text(&s.Directory, "an absolute path", isDirectory)),
		setting.Define("environment", "",
			"Environment variables of command, beside PATH, HOME, USER, LANG, TZ and those of the call.",
			setting.Secrets(&s.Environment, "variables", `{ DATABASE = "shop" }`, isVariable)),
		setting.Define("memory", "",
			"Maximum memory that each process of command may write to; on Linux only.",
			setting.Size(&s.Memory, 16<<20, 1<<40)),
		setting.Define("max_output", "",
			"Largest answer; command is ended when it writes more.",
			setting.Size(&s.MaxOutput, 1<<10, 256<<20)),
		setting.Define("url", "", "URL to which the handler http sends each call.",
			setting.URL(&s.URL)),
		setting.Define("secret", "",
			"Secret (whsec_ and base64) that signs the requests of the handler http; unsigned when empty.",
			setting.WebhookSecret(&s.Secret)),
		setting.Define("timeout", "", "Time limit of a call of the handlers exec and http.",
			setting.Duration(&s.Timeout, 100*time.Millisecond, maxTimeout)),
	}
}

// Check reports settings that a handler lacks, and settings of another kind of handler: these would
// be ignored, so that something else happens than an operator expects. at is the section with its
// dot.
func (s *Settings) Check(c *setting.Checker, at, handler string) {
	if !c.Valid(at+"handler", at+"command", at+"url") {
		return
	}
	is := fmt.Sprintf("%q is %s (%s)", at+"handler", handler, c.Origin(at+"handler"))
	for _, member := range []struct {
		name     string
		kind     string
		isSet    bool
		required bool
	}{
		{"command", Exec, len(s.Command) > 0, true},
		{"directory", Exec, s.Directory != "", false},
		{"environment", Exec, len(s.Environment) > 0, false},
		{"url", HTTP, s.URL != "", true},
		{"secret", HTTP, !s.Secret.Empty(), false},
	} {
		key := at + member.name
		switch {
		case member.required && handler == member.kind && !member.isSet:
			c.Report(key, fmt.Sprintf("%q is missing: %s", key, is))
		case member.isSet && handler != member.kind && c.Valid(key):
			c.Report(key, fmt.Sprintf("%q (%s) is for the handler %s, and %s", key, c.Origin(key),
				member.kind, is))
		}
	}
}

// command is a program with its arguments, or empty. As text the words stand between spaces, or
// are an array of JSON.
func command(p *[]string) setting.Value {
	return setting.Value{
		Set: func(in setting.Input) error {
			words, ok := commandWords(in)
			hasNUL := func(word string) bool { return strings.Contains(word, "\x00") }
			if !ok || slices.ContainsFunc(words, hasNUL) || (len(words) > 0 && words[0] == "") {
				return errors.New(`expected a program and its arguments such as ` +
					`["python3", "/opt/handlers/shop.py"]`)
			}
			*p = words
			return nil
		},
		Show: func() string {
			line := strings.Join(*p, " ")
			if slices.Equal(strings.Fields(line), *p) && !strings.HasPrefix(line, "[") {
				return line
			}
			text, err := json.Marshal(*p)
			if err != nil {
				return line // a list of texts never fails to encode
			}
			return string(text)
		},
	}
}

// commandWords reads a list of TOML, or text.
func commandWords(in setting.Input) (words []string, ok bool) {
	text, isText := in.Text()
	switch {
	case !isText:
		return in.List()
	case !in.IsText:
		return nil, false
	case strings.HasPrefix(text, "["):
		err := json.Unmarshal([]byte(text), &words)
		return words, err == nil
	}
	return strings.Fields(text), !strings.ContainsFunc(text, func(r rune) bool {
		return r < ' ' && r != '\t'
	})
}

// isDirectory reports whether a text is empty or an absolute path: the directory that a server is
// started in is no place that an operator thinks of.
func isDirectory(s string) bool {
	return s == "" || (strings.HasPrefix(s, "/") && !strings.ContainsFunc(s, isControl))
}

func isControl(r rune) bool { return r < ' ' || r == 0x7f }

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// isVariable reports whether a program may get a variable. Those of Millrace are of the call.
func isVariable(name, value string) bool {
	return variableName.MatchString(name) && !strings.HasPrefix(name, "MILLRACE_") &&
		!strings.Contains(value, "\x00")
}
