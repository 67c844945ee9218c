package config

import (
	"github.com/millrace/millrace/internal/contract/fetchbox"
	"github.com/millrace/millrace/internal/contract/forgerun"
	"github.com/millrace/millrace/internal/contract/images"
	"github.com/millrace/millrace/internal/contract/relay"
	"github.com/millrace/millrace/internal/contract/taskflow"
	"github.com/millrace/millrace/internal/schedule"
	"github.com/millrace/millrace/internal/setting"
)

// loaded are the settings of a node with those of all contracts.
type loaded struct {
	*Settings
	ForgeRun forgerun.Settings
	Images   images.Settings
	TaskFlow taskflow.Settings
	FetchBox fetchbox.Settings
	Relay    relay.Settings

	Schedules schedule.Settings
}

// groups returns what the contracts declare. handlers are the handlers of FetchBox, as its Group
// has them.
func (l *loaded) groups(handlers map[string][]string) []*setting.Group {
	return []*setting.Group{l.ForgeRun.Group(), l.Images.Group(), l.TaskFlow.Group(),
		l.FetchBox.Group(handlers), l.Relay.Group()}
}

// schedules are what schedules declare.
func (l *loaded) schedules() *setting.Group {
	return l.Schedules.Group([]string{"forgerun", "images", "taskflow", "fetchbox", "relay"})
}

// load is Load with all contracts. It returns nil with an error, as Load does.
func load(src Sources) (*loaded, error) { return loadWith(nil, src) }

// loadWith is load where handlers of FetchBox are compiled in.
func loadWith(handlers map[string][]string, src Sources) (*loaded, error) {
	l := &loaded{}
	src.Stores, src.Contracts = stores, l.groups(handlers)
	src.Parts = []*setting.Group{l.schedules()}
	s, err := Load(src)
	if s == nil {
		return nil, err
	}
	l.Settings = s
	return l, err
}

// defaultSettings are the settings of a node with all contracts for which nothing is set.
func defaultSettings() *Settings { return Default(stores, new(loaded).groups(nil)) }

// stores are the kinds of database of the tests.
var stores = []setting.StoreKind{setting.StoreWord("sqlite"),
	setting.StoreAt("postgres", "postgresql")}
