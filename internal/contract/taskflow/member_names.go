package taskflow

import "strings"

// Unknown members of a request are ignored (G-TF-15), which makes a misspelt member dangerous: a
// job whose "depends_on" is ignored runs at once. So a member that is spelt almost like a known
// one, or that is called so in systems like this one, is refused with the right name (400).

// names holds the member names of an object and the names that are mistaken for them.
type names struct {
	allowed     map[string]bool   // exact member names
	suggestions map[string]string // normalized wrong name → the member that is meant
}

// newNames returns the names of an object's members and their synonyms. prefix is the path of the
// object, which suggestions begin with. A member counts before a synonym that is spelt like it.
func newNames(prefix string, members []string, synonyms map[string]string) names {
	n := names{allowed: map[string]bool{}, suggestions: map[string]string{}}
	for word, member := range synonyms {
		n.suggestions[normalizeName(word)] = member
	}
	for _, member := range members {
		n.allowed[member] = true
		n.suggestions[normalizeName(member)] = prefix + member
	}
	return n
}

// check refuses a name that is mistaken for a member; any other unknown name passes (G-TF-15).
func (n *names) check(name []byte) error {
	if n.allowed[string(name)] || len(name) > maxComparedName {
		return nil
	}
	if suggestion := n.suggestions[normalizeName(string(name))]; suggestion != "" {
		return invalid("unknown member %q; use %s", name, suggestion)
	}
	return nil
}

// maxComparedName bounds the length of names that are compared; no known name is that long.
const maxComparedName = 64

// normalizeName removes differences of spelling: case, underscores, hyphens and blanks.
func normalizeName(name string) string {
	return strings.NewReplacer("_", "", "-", "", " ", "").
		Replace(strings.ToLower(strings.TrimSpace(name)))
}

const (
	policyPrefix = "retry_policy."
	dependencies = "dependencies"
	dependsOn    = "depends_on"
)

// dependencySynonyms and policySynonyms are names of such members in other contracts and in systems
// like this one.
var dependencySynonyms = []string{"depends", "dependency", "dependency_ids", "parent", "parents",
	"parent_id", "parent_ids", "parent_jobs", "prerequisites", "upstream", "requires"}

var policySynonyms = map[string]string{"attempts": "max_attempts", "max_retries": "max_attempts",
	"max_tries": "max_attempts", "retries": "max_attempts", "backoff": "backoff_strategy",
	"strategy": "backoff_strategy", "base_delay": "base_delay_seconds",
	"initial_delay": "base_delay_seconds", "max_delay": "max_delay_seconds"}

var policyMembers = []string{"max_attempts", "backoff_strategy", "base_delay_seconds",
	"max_delay_seconds"}

// The names in a job, in a job of a graph, and in a retry policy.
var (
	jobNames   = newJobNames([]string{dependencies}, dependsOn)
	graphNames = newJobNames([]string{"ref", dependsOn}, dependencies)

	policyNames = func() names {
		synonyms := map[string]string{}
		for word, member := range policySynonyms {
			synonyms[word] = policyPrefix + member
		}
		return newNames(policyPrefix, policyMembers, synonyms)
	}()
)

// GraphMember returns the member of a job in a graph that a name means which is none: a name of
// another spelling, or of another part of the API; empty for none.
func GraphMember(name string) string { return graphNames.suggestions[normalizeName(name)] }

// newJobNames returns the names in a job. The last of own is its member for dependencies;
// misplaced is the member that has this meaning elsewhere in the API.
func newJobNames(own []string, misplaced string) names {
	dependencyMember := own[len(own)-1]
	synonyms := map[string]string{misplaced: dependencyMember, "retry": "retry_policy"}
	for _, word := range dependencySynonyms {
		synonyms[word] = dependencyMember
	}
	for _, member := range policyMembers {
		synonyms[member] = policyPrefix + member
	}
	for word, member := range policySynonyms {
		synonyms[word] = policyPrefix + member
	}
	for _, word := range []string{"callback_url", "callbacks", "webhook_url"} {
		synonyms[word] = callbackMember
	}
	members := append([]string{"name", "queue", "payload", "priority", "retry_policy",
		callbackMember}, own...)
	return newNames("", members, synonyms)
}
