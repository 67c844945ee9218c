package taskflow

import "strings"

// names knows how the members of an object are called, and what else they are taken for.
type names struct {
	allowed     map[string]bool   // as they are written
	suggestions map[string]string // what is alike, or means the same elsewhere → the right one
}

// newNames makes names of the members of an object, which prefix leads to, and of synonyms.
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

// check refuses a member that is called otherwise here, or stands elsewhere: ignored, it
// would make another job than was meant. What is like nothing else passes (G-TF-15).
func (n *names) check(name []byte) error {
	if n.allowed[string(name)] || len(name) > maxComparedName {
		return nil
	}
	if suggestion := n.suggestions[normalizeName(string(name))]; suggestion != "" {
		return invalid("%s is not taken here; use %s", name, suggestion)
	}
	return nil
}

// maxComparedName bounds the names that are compared: none that is longer is like a member.
const maxComparedName = 64

// normalizeName is a name without what hands spell differently: case, underscores, hyphens,
// and blanks.
func normalizeName(name string) string {
	return strings.NewReplacer("_", "", "-", "", " ", "").
		Replace(strings.ToLower(strings.TrimSpace(name)))
}

const (
	policyPrefix = "retry_policy."
	dependencies = "dependencies"
	dependsOn    = "depends_on"
)

// dependencySynonyms and policySynonyms are what other contracts, and systems like this one, call
// members of a job.
var dependencySynonyms = []string{"depends", "dependency", "dependency_ids", "parent", "parents",
	"parent_id", "parent_ids", "parent_jobs", "prerequisites", "upstream", "requires"}

var policySynonyms = map[string]string{"attempts": "max_attempts", "max_retries": "max_attempts",
	"max_tries": "max_attempts", "retries": "max_attempts", "backoff": "backoff_strategy",
	"strategy": "backoff_strategy", "base_delay": "base_delay_seconds",
	"initial_delay": "base_delay_seconds", "max_delay": "max_delay_seconds"}

var policyMembers = []string{"max_attempts", "backoff_strategy", "base_delay_seconds",
	"max_delay_seconds"}

// The names in a job that is created or changed, in a job of a graph, and in a policy.
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

// newJobNames are those of a job whose dependencies are called as the last of own, and not
// as elsewhere.
func newJobNames(own []string, misplaced string) names {
	synonyms := map[string]string{misplaced: own[len(own)-1], "retry": "retry_policy"}
	for _, word := range dependencySynonyms {
		synonyms[word] = own[len(own)-1]
	}
	for _, member := range policyMembers {
		synonyms[member] = policyPrefix + member
	}
	for word, member := range policySynonyms {
		synonyms[word] = policyPrefix + member
	}
	members := append([]string{"name", "queue", "payload", "priority", "retry_policy"}, own...)
	return newNames("", members, synonyms)
}
