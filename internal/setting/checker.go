package setting

import (
	"fmt"
	"slices"
	"time"
)

// Problem is one error in the settings, which prevents the start.
type Problem struct {
	Key    string // the setting; empty when the file as a whole cannot be read
	Origin string // the layer and place where it was written
	Text   string // a sentence that names both, without credentials
	Err    error  // the error of the file system that caused it, or nil
}

// Checker collects the problems between settings.
type Checker struct {
	Problems []Problem
	Origin   func(key string) string // where the value of a setting was written
	Failed   map[string]bool         // the settings with an invalid value
}

// Valid reports whether the values of some settings are valid, each by itself. Rules between
// settings leave out those that are not.
func (c *Checker) Valid(keys ...string) bool {
	return !slices.ContainsFunc(keys, func(key string) bool { return c.Failed[key] })
}

// Report adds the problem of a setting.
func (c *Checker) Report(key, text string) {
	c.Problems = append(c.Problems, Problem{Key: key, Origin: c.Origin(key), Text: text})
}

// Reportf adds the problem of a setting, with its name and origin in front.
func (c *Checker) Reportf(key, format string, v ...any) {
	c.Report(key, fmt.Sprintf("%q (%s): ", key, c.Origin(key))+fmt.Sprintf(format, v...))
}

// Has reports whether a setting is among the problems.
func (c *Checker) Has(key string) bool {
	return slices.ContainsFunc(c.Problems, func(p Problem) bool { return p.Key == key })
}

// Below is the rule that one duration is below another.
func (c *Checker) Below(smaller string, less time.Duration, larger string, more time.Duration) {
	if less >= more {
		c.reportOrder(smaller, less, "must be below", larger, more)
	}
}

// NotAbove is the rule that one duration is not above another.
func (c *Checker) NotAbove(smaller string, less time.Duration, larger string, more time.Duration) {
	if less > more {
		c.reportOrder(smaller, less, "must not be above", larger, more)
	}
}

func (c *Checker) reportOrder(smaller string, less time.Duration, words, larger string,
	more time.Duration) {
	if c.Valid(smaller, larger) {
		c.Reportf(smaller, "%s %s %q, which is %s (%s)", FormatDuration(less), words, larger,
			FormatDuration(more), c.Origin(larger))
	}
}
