// Package config turns what an operator wrote into one immutable Settings value.
//
// Four layers, each over the one before it:
//
//	default            the table in keys.go
//	file PATH          one TOML file
//	environment NAME   MILLRACE__SECTION__KEY, two underscores between levels; an empty value is not set
//	flag --KEY         what the command line was given
//
// keys.go declares every key once: its name, default, sentence, accepted values and the field it
// fills. A new setting is one line there and one field in Settings. Nothing else in the program
// parses a setting.
//
// A start with a wrong setting does not happen. Load reads every layer, then reports all problems
// together, sorted; each names the key, where it was written and what would be right: an unknown
// key its nearest known one, a wrong value what is expected. A value that a higher layer replaces
// must still be a good one.
//
// Secrets are a type that prints ***; the store's URL prints without its password. Problems mask
// the same way, also for values that look like a credential in the wrong place.
//
// The package reads the file it is told to read and nothing else: the environment is passed in
// (design, law 6).
package config
