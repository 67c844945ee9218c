package config

import (
	"errors"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/knadh/koanf/providers/file"
)

// DefaultFile is the file in the working directory that is read when the command line names none.
const DefaultFile = "millrace.toml"

const (
	envPrefix     = "MILLRACE__"
	originDefault = "default"
)

// Sources are the layers above the defaults. Only cmd reads the environment of the process.
type Sources struct {
	File     string            // TOML file; empty for none
	Explicit bool              // the operator named File, so it must exist
	Environ  []string          // NAME=value, as os.Environ returns it
	Flags    map[string]string // key → value; an empty value is a value
	// OtherVariables are environment variables with the prefix of settings that are none. A name
	// that ends in _ stands for all variables with that prefix.
	OtherVariables []string
	// Handlers are the handlers of FetchBox that are compiled in, with the options they support.
	// Nil leaves handlers and options unchecked.
	Handlers map[string][]string
}

// loader applies the layers to settings and collects the problems.
type loader struct {
	settings Settings
	problems []Problem
	// failed are the keys with an invalid value, which checks across keys leave out.
	failed map[string]bool
}

// Load returns the settings, or an *Error with all problems.
func Load(src Sources) (*Settings, error) {
	l := gather(src)
	l.settings.applyCommonToken()
	l.problems = append(l.problems, l.settings.check(l.failed, src.Handlers)...)
	if err := newError(l.problems); err != nil {
		return nil, err
	}
	return &l.settings, nil
}

// LogFormat returns the format of the log even when other settings are wrong, so that the problems
// can be reported in it.
func LogFormat(src Sources) string { return gather(src).settings.Log.Format }

// gather applies the layers in their order.
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

// newLoader returns a loader with the default layer.
func newLoader() *loader {
	l := &loader{failed: map[string]bool{}}
	l.settings.origins = map[string]string{}
	l.settings.jobType(defaultHandler)
	for _, k := range keys {
		l.apply(k.name, input{raw: k.defaultValue, isText: true}, originDefault)
	}
	return l
}

// apply sets one key from one layer, or records a problem.
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

// file applies the layer of the TOML file. Only a file that the operator named must exist.
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
	case errors.Is(err, fs.ErrNotExist) && !explicit:
	case err != nil:
		l.addFileProblem(origin, origin+" cannot be read: "+pathlessError(err), err)
	default:
		l.document(data, origin)
	}
}

// addFileProblem records a problem of the file as a whole. All keys count as failed, since the file
// may have set any of them.
func (l *loader) addFileProblem(origin, text string, err error) {
	l.problems = append(l.problems, Problem{Origin: origin, Text: text, err: err})
	for _, k := range keys {
		l.failed[k.name] = true
	}
}

// pathlessError returns the text of a file system error without the path, which the problem names
// already.
func pathlessError(err error) string {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return pe.Err.Error()
	}
	return err.Error()
}

// environment applies the variables MILLRACE__SECTION__KEY. Variables with other prefixes, such as
// MILLRACE_SERVER, are not settings. Those that look like settings are reported as
// unknownVariables.
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
