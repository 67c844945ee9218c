// Package setting is what settings are declared with. It imports nothing of a contract and nothing
// of the configuration, so that both can use it.
//
// A contract declares its settings next to its code, as a [Group]: each [Key] has a name, a
// default, a description, and a [Value], which is the field that it fills and the rules for it.
// Package config reads all layers of settings into the values of all groups, and reports problems.
//
//	func (s *Settings) Group() *setting.Group {
//		return &setting.Group{Name: "relay", Keys: []setting.Key{
//			setting.Define("relay.max_num_jobs", "1000", "Maximum number of jobs of one poll.",
//				setting.Int(&s.MaxNumJobs, 1, 100_000)),
//		}}
//	}
//
// The constructors of values cover what several contracts need; a contract may make a Value of its
// own. A [Section] has the same settings for each of many names, such as [taskflow.queues.NAME],
// and a [Checker] collects the problems between settings.
//
// # A new setting
//
// File, environment, flags, errors and the command millrace config follow from its declaration.
//
//   - One of a contract is a field of Settings and a Define with key, default, meaning and check,
//     both in settings.go of the contract, whose Config embeds Settings (sections of FetchBox:
//     settings_types.go, their rules in settings_check.go). The meaning is a sentence of at most
//     120 characters. A setting of each queue or type is among the keys of a Section; its default
//     is in the function that makes an item (newQueue, newType, external.Defaults), and that of
//     Define is empty. A rule between keys is the Check of the group.
//   - One of the node is a field in config/settings.go and a key in config/keys.go, with rules
//     between keys in config/validate.go. Package server reads it from there, and cmd/millrace
//     (serve.go, admin.go, contractDeps in contracts.go) hands it to packages that do not import
//     config: to a contract in contract.Deps, from which its build.go makes its Config.
//   - Where a contract relies on a range, its validate (contract.go) checks it too. Literals of
//     Settings then need the field: world_test.go of the contract, admin/actions_test.go,
//     admin/all_contracts_test.go, inbox/world_test.go, schedule/world_test.go and replace_test.go,
//     tests and programs of client and bench. The test of validate is the contract's TestConfig,
//     where it has one.
//   - One of a schedule is a field of schedule.Definition, and in its Equal (definition.go), else a
//     file in which it alone has changed is not applied; its Define and, in newDefinition, its
//     default are in settings.go there. The admin API has it too: scheduleMembers, patchSchedule,
//     which panics for a member that is in none of its maps and has the defaults again, and
//     writeSchedule (admin/schedules.go), openapi.yaml, SC-001 in docs/contracts/admin.md,
//     docs/schedules.md, console/scheduleform.go with pages/scheduleform.html,
//     client/admin_schedules.go, clients/ and the command schedules.
//   - config/resolved_test.go lists all settings outside of sections and fails by itself; those of
//     sections are in queues_test.go, fetchbox_test.go and schedules_test.go. value_test.go has
//     values at the bounds of the range and beyond, and load_test.go the defaults (FetchBox:
//     fetchbox_test.go, Images: images_test.go); of these, no test asks for every line.
//   - docs/operating.md has a table for each contract (those of Relay are in the table of their
//     subject) and for the node. README.md has those that most operators need.
//     docs/reference/settings.md is written by go test ./cmd/millrace -run TestReference -update.
package setting
