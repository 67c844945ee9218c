package main

import (
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/config"
	"github.com/millrace/millrace/internal/setting"
)

// The page docs/reference/settings.md has every setting with its default, its meaning, and what it
// may be.
func TestReferenceSettings(t *testing.T) {
	t.Parallel()
	s, err := loadSettings(config.Sources{})
	if err != nil {
		t.Fatal(err)
	}
	p := &page{}
	p.line(`# Settings

Every setting of this version, made from the code. A value is taken from the last of these that has
one: the default, the file %[1]smillrace.toml%[1]s (or %[1]s--config FILE%[1]s), the environment,
%[1]s--set key=value%[1]s. The name in the environment is that of the key in capital letters, with two
underscores for each dot: %[1]srelay.max_num_jobs%[1]s is %[1]sMILLRACE__RELAY__MAX_NUM_JOBS%[1]s.
%[1]smillrace config%[1]s shows what a node has, and from where. [Operating](../operating.md) says which to
change, and when.`, "`")
	ofContract := map[string]bool{}
	var sections []setting.Section
	for _, d := range s.definitions {
		sections = append(sections, d.Settings.Sections...)
		for _, k := range d.Settings.Keys {
			ofContract[k.Name] = true
		}
	}
	p.line("\n## The node")
	p.table("key", "default", "values", "meaning")
	for _, e := range s.Resolved() {
		ofSection := slices.ContainsFunc(sections, func(one setting.Section) bool {
			return strings.HasPrefix(e.Key, one.Name+".")
		})
		if !ofContract[e.Key] && !ofSection {
			p.row(code(e.Key), code(e.Value), expected(t, e.Key), e.Description)
		}
	}
	for _, d := range s.definitions {
		p.line("\n## %s", contractTitles[d.Name()])
		p.table("key", "default", "values", "meaning")
		for _, k := range d.Settings.Keys {
			p.row(code(k.Name), code(k.Default), expected(t, k.Name), k.Description)
		}
		for _, section := range d.Settings.Sections {
			p.section(t, section)
		}
	}
	names := []string{}
	for _, d := range s.definitions {
		names = append(names, d.Name())
	}
	p.line("\n## Schedules")
	for _, section := range s.schedules.Group(names).Sections {
		p.section(t, section)
	}
	checkReference(t, "settings.md", p.String())
}

// contractTitles are the names of contracts in sentences.
var contractTitles = map[string]string{"relay": "Relay", "forgerun": "ForgeRun",
	"taskflow": "TaskFlow", "fetchbox": "FetchBox", "images": "Images"}

// section adds the settings that each of many names has.
func (p *page) section(t *testing.T, section setting.Section) {
	t.Helper()
	const name = "name"
	p.line("\n### `[%s.NAME]`\n", section.Name)
	p.line("A name is %s.", section.ValidNames)
	p.table("key", "default", "values", "meaning")
	section.Items.Add(name)
	for _, k := range section.Items.Members(name) {
		key := strings.TrimPrefix(k.Name, section.Name+"."+name+".")
		p.row(code(key), code(k.Value.Show()), expected(t, section.Name+"."+name+"."+key), k.Description)
	}
}

// shownWrong is a wrong value as errors show it, and what they say before it.
var shownWrong = regexp.MustCompile(`^wrong value for .*?\): (\*\*\*|"\*\*\*"|"\\x01"); `)

// expected returns what a setting may be, as the error of a wrong value says.
func expected(t *testing.T, key string) string {
	t.Helper()
	_, err := loadSettings(config.Sources{Flags: map[string]string{key: "\x01"}})
	var wrong *config.Error
	if !errors.As(err, &wrong) {
		return "any text"
	}
	at := slices.IndexFunc(wrong.Problems, func(p setting.Problem) bool { return p.Key == key })
	if at < 0 { // what else the section needs is missing
		return "any text"
	}
	text := wrong.Problems[at].Text
	found := shownWrong.FindString(text)
	if found == "" {
		t.Fatalf("%s: %s", key, text)
	}
	text = text[len(found):]
	for _, before := range []string{"cron is not valid: ", "expected ", "must be "} {
		text = strings.TrimPrefix(text, before)
	}
	for _, after := range []string{`; unknown "\x01"`, `; "\x01" is invalid`, ", found "} {
		text, _, _ = strings.Cut(text, after) // what is wrong with this one
	}
	return text
}
