package config

import (
	"errors"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/knadh/koanf/providers/file"
)

// DefaultFile is read from the working directory when the command line names no file.
const DefaultFile = "millrace.toml"

const (
	envPrefix     = "MILLRACE__"
	originDefault = "default"
)

// Sources is everything settings come from. Only cmd knows the process's environment and passes it
// in.
type Sources struct {
	File     string            // TOML file; empty for none
	Explicit bool              // the operator named File, so it has to be there
	Environ  []string          // NAME=value, as os.Environ gives it
	Flags    map[string]string // key → value; an empty value is a value
	// variables that begin as those of settings do and are something else; PREFIX_ is all that
	// begin so
	OtherVariables []string
	// of FetchBox that are compiled in → the options they know; nil leaves both unchecked
	Handlers map[string][]string
}

// loader gathers the layers into settings and everything that is wrong with them.
type loader struct {
	settings Settings
	problems []Problem
	// keys with a problem of their own: their value says nothing to checks across keys
	failed map[string]bool
}

// Load resolves the settings. Its error is an *Error with all problems; there are no settings then.
func Load(src Sources) (*Settings, error) {
	l := gather(src)
	l.settings.applyCommonToken()
	l.problems = append(l.problems, l.settings.check(l.failed, src.Handlers)...)
	if err := newError(l.problems); err != nil {
		return nil, err
	}
	return &l.settings, nil
}

// LogFormat is the format that the log would have, also where something else is wrong with the
// settings.
func LogFormat(src Sources) string { return gather(src).settings.Log.Format }

// gather applies the layers one over the other.
func gather(src Sources) *loader {
	l := newLoader()
	l.file(src.File, src.Explicit)
	l.environment(src.Environ)
	l.settings.unknownVariables = unknownVariables(src.Environ, src.OtherVariables)
	for _, name := range slices.Sorted(maps.Keys(src.Flags)) {
		l.apply(name, input{raw: src.Flags[name], isText: true},
			"flag --set "+printable(shorten(name)))
	}
	return l
}

// newLoader has the default layer.
func newLoader() *loader {
	l := &loader{failed: map[string]bool{}}
	l.settings.origins = map[string]string{}
	l.settings.jobType(defaultHandler)
	for _, k := range keys {
		l.apply(k.name, input{raw: k.defaultValue, isText: true}, originDefault)
	}
	return l
}

// apply sets one key from one layer, or records why not.
func (l *loader) apply(name string, in input, origin string) {
	k, ok := findKey(name)
	if !ok && in.isText {
		k, ok = findEntry(name)
	}
	if !ok {
		l.problems = append(l.problems, unknownKey(name, origin))
		return
	}
	v := k.bind(&l.settings)
	if err := v.set(in); err != nil {
		l.problems = append(l.problems, wrongValue(k, v, in, origin, err))
		l.failed[k.name] = true
		return
	}
	if origin != originDefault {
		l.settings.origins[k.name] = origin
	}
}

func (l *loader) file(path string, explicit bool) {
	if path == "" {
		if explicit {
			l.addFileProblem("", "the path of the settings file is empty", nil)
		}
		return
	}
	origin := "file " + printable(path)
	data, err := file.Provider(path).ReadBytes()
	switch {
	case err == nil:
		l.document(data, origin)
	case errors.Is(err, fs.ErrNotExist) && !explicit:
	default:
		l.addFileProblem(origin, origin+" cannot be read: "+pathlessError(err), err)
	}
}

// addFileProblem records a problem of the file as a whole; every key it might have set is in doubt.
func (l *loader) addFileProblem(origin, text string, err error) {
	l.problems = append(l.problems, Problem{Origin: origin, Text: text, err: err})
	for _, k := range keys {
		l.failed[k.name] = true
	}
}

// pathlessError leaves the path out of a file system error: it stands in the sentence already.
func pathlessError(err error) string {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return pe.Err.Error()
	}
	return err.Error()
}

// environment reads MILLRACE__SECTION__KEY. Names with other prefixes, MILLRACE_SERVER among them,
// are not settings. Those that look like it are told by Settings.Strays.
func (l *loader) environment(environ []string) {
	values := map[string]string{}
	for _, pair := range environ {
		name, text, _ := strings.Cut(pair, "=")
		if strings.HasPrefix(name, envPrefix) {
			values[name] = text
		}
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if values[name] == "" {
			continue
		}
		origin := "environment " + printable(shorten(name))
		key := strings.ReplaceAll(strings.TrimPrefix(name, envPrefix), "__", ".")
		if key != strings.ToUpper(key) {
			l.problems = append(l.problems, unknownKey(key, origin))
			continue
		}
		l.apply(strings.ToLower(key), input{raw: values[name], isText: true}, origin)
	}
}
