// Package config turns the settings that an operator wrote into one immutable Settings value.
//
// There are four layers, and each overrides the one before it:
//
//	default            the declaration of the key
//	file PATH          one TOML file
//	environment NAME   MILLRACE__SECTION__KEY, two underscores between levels; empty means not set
//	flag --KEY         the command line
//
// Every key is declared once: its name, default, description, accepted values and the field it
// fills. keys.go declares the keys of the node; each contract declares its own as a
// [setting.Group], which Load gets from its caller. A new setting is one line in a declaration and
// one field. No other code parses a setting.
//
// A node does not start with a wrong setting. Load reads all layers and reports all problems
// together, sorted. Each problem names the key, where it was written, and what would be right: the
// nearest known key for an unknown one, the accepted values for a wrong one. A value that a later
// layer overrides must be valid too.
//
// A Secret prints as ***, and the URL of the store without its password. Problems are masked in the
// same way, also for values that look like a credential in the wrong place.
//
// The package reads no file but the named one, and its caller passes in the environment.
package config
