package setting

import (
	"fmt"
	"maps"
	"slices"
)

// Key declares one setting.
type Key struct {
	Name        string
	Default     string // as it would be written in the environment
	Description string
	Value       Value
}

// Define declares a setting.
func Define(name, defaultValue, description string, v Value) Key {
	return Key{Name: name, Default: defaultValue, Description: description, Value: v}
}

// Group has the settings that one contract declares, or a part of the node that is no contract.
// Such a part has no listener, no token and no workers.
type Group struct {
	Name string // of the contract, as the setting contracts has it
	Keys []Key

	// Sections have the same settings for each of many names.
	Sections []Section
	// Check, unless nil, checks the rules between the settings, whether the contract is served or
	// not.
	Check func(*Checker)

	Listen *string // the address of a listener of its own; empty is the common one
	// Token is what clients send. Nil means that they have API keys instead, so that the contract
	// is never open.
	Token *Secret
	// CallbackSecret signs the callbacks of single jobs; empty: one is derived from the pepper. Nil
	// means that the jobs have none.
	CallbackSecret *Secret
	// Workers reports whether remote workers execute its jobs.
	Workers Workers
	// UsesStreams reports whether the contract needs streams; nil means that it does not.
	UsesStreams func() bool
}

// Workers says what a contract needs of the worker API.
type Workers int

// What a contract needs of the worker API.
const (
	NoWorkers       Workers = iota // it has no jobs for remote workers
	OptionalWorkers                // remote workers may execute its jobs
	RequiredWorkers                // some of its jobs only remote workers execute
)

// ListenKey declares the address of a listener for one contract alone. title is the contract's name
// in sentences.
func ListenKey(contract, title string, p *string) Key {
	return Define(contract+".listen", "",
		fmt.Sprintf("Address of a listener for %s alone; the common one when empty.", title),
		OptionalAddress(p))
}

// TokenKey declares the token of a contract whose document requires no credentials.
func TokenKey(contract, title string, p *Secret) Key {
	return Define(contract+".token", "",
		fmt.Sprintf("Token that %s clients send; open on loopback when empty.", title), Token(p))
}

// CallbackSecretKey declares the secret that signs the callbacks of a contract's jobs.
func CallbackSecretKey(contract, title string, p *Secret) Key {
	return Define(contract+".callback_secret", "",
		fmt.Sprintf("Secret (whsec_ and base64) that signs callbacks of %s; one is made when empty.",
			title), WebhookSecret(p))
}

// Section has the same settings for each of many names, such as [taskflow.queues.NAME].
type Section struct {
	Name       string
	AllowDots  bool                   // a name may hold dots
	AddEmpty   bool                   // a name whose section has nothing in it is there as well
	Valid      func(name string) bool // whether a text is a name
	ValidNames string                 // what a valid name is, in words
	Items      Items
}

// Items are the names of a section, with the settings of each.
type Items struct {
	Names   func() []string // in their order
	Add     func(name string)
	Members func(name string) []Key // Key.Name is the end of the setting's name
}

// ItemsOf makes the items of a section that are stored in a map. fresh returns the defaults of a
// new item, and members declares its settings. The members of a name that is not in the map belong
// to an item that nothing uses.
func ItemsOf[T any](items *map[string]*T, fresh func() *T, members func(*T) []Key) Items {
	return Items{
		Names: func() []string { return slices.Sorted(maps.Keys(*items)) },
		Add: func(name string) {
			if *items == nil {
				*items = map[string]*T{}
			}
			if (*items)[name] == nil {
				(*items)[name] = fresh()
			}
		},
		Members: func(name string) []Key {
			item := (*items)[name]
			if item == nil {
				item = fresh()
			}
			return members(item)
		},
	}
}
