package jobs

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/cmd/millrace/internal/cli"
)

// The server says why a job does not run by codes and facts. Here they become the commands that an
// operator would look for next.

// factRoot is the fact that answers for the job at the end of a chain of dependencies.
const factRoot = "root"

// remedies returns the commands that change why a job does not run, or that show more about it.
// Where it waits for a chain of jobs they are about the last one, which the others wait for.
func remedies(why client.AdminWhy) (all []string) {
	for _, r := range why.Reasons {
		if root, found := rootOf(&r); found {
			all = append(all, "millrace why "+fmt.Sprint(root.Number))
			return append(all, remedies(root)...)
		}
		for _, command := range remediesOf(&why, &r) {
			if !slices.Contains(all, command) {
				all = append(all, command)
			}
		}
	}
	return all
}

// rootOf returns the last job of the chain that a reason is about.
func rootOf(r *client.AdminReason) (root client.AdminWhy, found bool) {
	err := json.Unmarshal(r.Facts[factRoot], &root)
	return root, err == nil
}

// remediesOf returns the commands for one reason.
func remediesOf(why *client.AdminWhy, r *client.AdminReason) []string {
	queue := shellWord(cli.QueueName(why.Contract, why.Queue))
	switch r.Code {
	case client.AdminReasonQueuePaused:
		return []string{"millrace queues resume " + queue}
	case client.AdminReasonNoWorkers:
		return startWorkers(why, r)
	case client.AdminReasonNodeDraining:
		return namedCommands("millrace nodes resume ", r.Facts["nodes"])
	case client.AdminReasonQueueLimit:
		return []string{"millrace queues set " + queue + " --run-limit N"}
	case client.AdminReasonRateLimited:
		return []string{"millrace queues set " + queue + " --rate N/1m"}
	case client.AdminReasonBehindOtherJobs:
		return []string{"millrace queues show " + queue}
	case client.AdminReasonNotDue, client.AdminReasonBackingOff:
		if r.Facts["lease_until"] != nil { // of a failed run: its job still is the worker's
			return []string{fmt.Sprintf("millrace jobs release %d", why.Number)}
		}
		return []string{fmt.Sprintf("millrace jobs run-now %d", why.Number)}
	case client.AdminReasonDependencyFailed:
		return failedDependencies(r)
	case client.AdminReasonDead:
		id := string(r.Facts["dead_letter"])
		return []string{"millrace dlq show " + id, "millrace dlq replay " + id}
	case client.AdminReasonMessagePending:
		return []string{"millrace health"}
	}
	return nil
}

// startWorkers returns the commands for a queue that nobody asks for: those that end the drains of
// its workers, else one that starts a worker, where a command can be one.
func startWorkers(why *client.AdminWhy, r *client.AdminReason) []string {
	if drained := namedCommands("millrace workers resume ", r.Facts["drained_workers"]); drained !=
		nil {
		return drained
	}
	switch why.Contract {
	case client.ContractTaskFlow, client.ContractForgeRun:
		return []string{"millrace workers list", fmt.Sprintf(
			"millrace work %s --contract %s -- COMMAND", shellWord(why.Queue), why.Contract)}
	case "relay":
		return []string{"millrace workers list", fmt.Sprintf("millrace work %s -- COMMAND",
			shellWord(why.Queue))}
	}
	return []string{"millrace workers list", "millrace nodes list"}
}

// failedDependencies returns the commands about the jobs that have failed another.
func failedDependencies(r *client.AdminReason) (all []string) {
	var failed []struct{ Number int64 }
	_ = json.Unmarshal(r.Facts["dependencies"], &failed) // no list has no commands
	for _, d := range failed {
		all = append(all, fmt.Sprintf("millrace why %d", d.Number))
	}
	return all
}

// namedCommands returns a command for the names of a list.
func namedCommands(command string, list json.RawMessage) []string {
	var names []string
	if json.Unmarshal(list, &names) != nil || len(names) == 0 {
		return nil
	}
	for i, name := range names {
		names[i] = shellWord(name)
	}
	return []string{command + strings.Join(names, " ")}
}

// plainWord finds what no shell wants quoted.
var plainWord = regexp.MustCompile(`^[\w.,:/@%+=-]+$`)

// shellWord writes a word as a shell takes it.
func shellWord(word string) string {
	if plainWord.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
