// Package setting is what settings are declared with. It imports nothing of a contract and nothing
// of the configuration, so that both can use it.
//
// A contract declares its settings next to its code, as a [Group]: each [Key] has a name, a
// default, a description, and a [Value], which is the field that it fills and the rules for it.
// Package config reads all layers of settings into the values of all groups, and reports what is
// wrong.
//
//	func (s *Settings) Group() *setting.Group {
//		return &setting.Group{Name: "relay", Keys: []setting.Key{
//			setting.Define("relay.max_num_jobs", "1000", "Most jobs of one poll.",
//				setting.Int(&s.MaxNumJobs, 1, 100_000)),
//		}}
//	}
//
// The constructors of values cover what several contracts need; a contract may make a Value of its
// own. A [Section] has the same settings for each of many names, such as [taskflow.queues.NAME],
// and a [Checker] collects what is wrong between settings.
package setting
