package config

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/millrace/millrace/internal/setting"
)

// DefaultFile is the file in the working directory that is read when the command line names none.
const DefaultFile = "millrace.toml"

const (
	envPrefix     = "MILLRACE__"
	originDefault = "default"
)

// Sources are the layers above the defaults. Only cmd reads the environment of the process.
type Sources struct {
	// File is the path of the TOML file; empty for none.
	File string
	// Explicit says that the operator named File, so that it must exist.
	Explicit bool
	// Environ holds the environment as NAME=value, as os.Environ returns it.
	Environ []string
	// Flags holds the values of --set by key. An empty value is a value.
	Flags map[string]string
	// OtherVariables are environment variables with the prefix of settings that are none. A name
	// that ends in _ stands for all variables with that prefix.
	OtherVariables []string
	// Stores are the kinds of database that the setting store can name.
	Stores []setting.StoreKind
	// Contracts are what the contracts declare, in the order in which users see them.
	Contracts []*setting.Group
	// Parts are what other parts of the node declare: keys, sections and rules.
	Parts []*setting.Group
}

// loader applies the layers to settings and collects the problems.
type loader struct {
	settings *Settings
	problems []setting.Problem
	// failed are the keys with an invalid value, which checks across keys leave out.
	failed map[string]bool
}

// Load returns the settings, or an *Error with all problems.
func Load(src Sources) (*Settings, error) {
	l := gather(src)
	l.settings.applyCommonToken()
	l.problems = append(l.problems, l.settings.check(l.failed)...)
	if err := newError(l.problems); err != nil {
		return nil, err
	}
	return l.settings, nil
}

// LogFormat returns the format of the log even when other settings are wrong, so that the problems
// can be reported in it.
func LogFormat(src Sources) string { return gather(src).settings.Log.Format }

// gather applies the layers in their order.
func gather(src Sources) *loader {
	l := newLoader(src.Stores, src.Contracts, src.Parts...)
	l.file(src.File, src.Explicit)
	l.environment(src.Environ)
	l.settings.unknownVariables = l.settings.findUnknownVariables(src.Environ, src.OtherVariables)
	for _, name := range slices.Sorted(maps.Keys(src.Flags)) {
		l.apply(name, setting.Input{Raw: src.Flags[name], IsText: true},
			"flag --set "+setting.Printable(setting.Shorten(name)))
	}
	return l
}

// newLoader returns a loader with the default layer.
func newLoader(stores []setting.StoreKind, contracts []*setting.Group,
	parts ...*setting.Group) *loader {
	s := &Settings{stores: stores, groups: contracts, parts: parts, origins: map[string]string{}}
	s.keys = s.nodeKeys()
	for _, g := range slices.Concat(contracts, parts) {
		s.keys = append(s.keys, g.Keys...)
		for i := range g.Sections {
			s.sections = append(s.sections, &g.Sections[i])
		}
	}
	l := &loader{settings: s, failed: map[string]bool{}}
	for _, k := range s.keys {
		l.apply(k.Name, setting.Input{Raw: k.Default, IsText: true}, originDefault)
	}
	return l
}

// Default returns the settings of a node for which nothing is set.
func Default(stores []setting.StoreKind, contracts []*setting.Group) *Settings {
	return newLoader(stores, contracts).settings
}

// apply sets one key from one layer, or records a problem.
func (l *loader) apply(name string, in setting.Input, origin string) {
	k, ok := l.settings.bind(name)
	if !ok && in.IsText {
		k, ok = l.settings.findEntry(name)
	}
	if !ok {
		l.problems = append(l.problems, l.settings.unknownKey(name, origin))
		return
	}
	if err := k.Value.Set(in); err != nil {
		l.problems = append(l.problems, wrongValue(k, in, origin, err))
		l.failed[k.Name] = true
		return
	}
	if origin != originDefault {
		l.settings.origins[k.Name] = origin
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
	origin := "file " + setting.Printable(path)
	data, err := os.ReadFile(path)
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
	l.problems = append(l.problems, setting.Problem{Origin: origin, Text: text, Err: err})
	for _, k := range l.settings.keys {
		l.failed[k.Name] = true
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
		origin := "environment " + setting.Printable(setting.Shorten(name))
		key := strings.ReplaceAll(strings.TrimPrefix(name, envPrefix), "__", ".")
		if key != strings.ToUpper(key) {
			l.problems = append(l.problems, l.settings.unknownKey(key, origin))
			continue
		}
		l.apply(strings.ToLower(key), setting.Input{Raw: values[name], IsText: true}, origin)
	}
}
