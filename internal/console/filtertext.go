package console

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/admin"
	"github.com/millrace/millrace/internal/bulk"
	"github.com/millrace/millrace/internal/contract"
)

// What a bulk operation is about is said by its filter, with the names of the fields of the form
// that starts one. The filter is read back from the operation and not from what was sent, so the
// page says what is done also for an operation that the API or a command has started.

// filterFields returns the members of the filter of an operation that select something. Texts that
// disclose what jobs carry are there only for those who see these.
func filterFields(viewer admin.Viewer, r bulk.Request) (all []field) {
	add := func(name, value string) {
		if value != "" {
			all = append(all, field{name, value})
		}
	}
	if f := r.DeadLetters; f != nil {
		add("contract", onlyContract(f.JobTypes))
		add("queue", f.Queue)
		add("fingerprint", f.Fingerprint)
		add("error", viewer.RedactText(f.Error))
		add("from", timeField(f.From))
		add("to", timeField(f.To))
	}
	f := r.Jobs
	if f == nil {
		return all
	}
	add("contract", onlyContract(f.JobTypes))
	add("queue", f.Queue)
	add("phase", strings.Join(phasesOf(f), ", "))
	for _, state := range f.States {
		add("state", string(state))
	}
	owner := "owner"
	if r.Action == bulk.Replay {
		owner = "webhook" // whose deliveries are made once more
	}
	add(owner, f.Owner)
	add("kind", f.Kind)
	add("id", f.ID)
	add("number", numbersText(f.Numbers))
	add("parent", positive(f.Parent))
	add("worker", f.Worker)
	for _, at := range []struct {
		name string
		time time.Time
	}{{"created from", f.CreatedFrom}, {"created before", f.CreatedBefore},
		{"done from", f.FinishedFrom}, {"done before", f.FinishedBefore}} {
		add(at.name, timeField(at.time))
	}
	add("attempts at least", positive(int64(f.MinAttempts)))
	add("error", viewer.RedactText(f.Error))
	add("text", viewer.RedactText(f.Text))
	return all
}

// phasesOf returns the phases that a filter selects, in the words of pages.
func phasesOf(f *bulk.JobFilter) (all []string) {
	for _, phase := range f.Phases {
		all = append(all, phaseWord(phase.String()))
	}
	if f.Dead {
		all = append(all, contract.PhaseDead)
	}
	return all
}

// onlyContract returns the name of the contract that all of some job types are to clients; "" where
// they are several, as a filter that names none has them all.
func onlyContract(engine []string) string {
	var names []string
	for _, one := range engine {
		names = append(names, contract.PublicName(one))
	}
	slices.Sort(names)
	if names = slices.Compact(names); len(names) != 1 {
		return ""
	}
	return names[0]
}

// maxNumbersShown is how many jobs that a filter names are shown one by one.
const maxNumbersShown = 10

// numbersText writes the numbers of jobs that were marked.
func numbersText(numbers []int64) string {
	var texts []string
	for _, n := range numbers[:min(len(numbers), maxNumbersShown)] {
		texts = append(texts, strconv.FormatInt(n, 10))
	}
	text := strings.Join(texts, ", ")
	if len(numbers) > maxNumbersShown {
		text += " and " + number(len(numbers)-maxNumbersShown) + " more"
	}
	return text
}

// positive writes a number, "" for 0.
func positive(n int64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

// verb writes an action as it stands on a button.
func verb(action string) string {
	return strings.ToUpper(action[:1]) + strings.ReplaceAll(action[1:], "-", " ")
}

// actionText writes an action with what it is done to.
func actionText(action, what string) string {
	before, isNow := strings.CutSuffix(verb(action), " now")
	if isNow {
		return before + " " + what + " now"
	}
	return before + " " + what
}

// operationTitle says what an operation does, and to which jobs.
func operationTitle(o *bulk.Operation) string {
	what := map[string]string{}
	for _, f := range filterFields(admin.Viewer{}, o.Request) {
		what[f.Name] = f.Value
	}
	switch {
	case what["queue"] != "" && what["contract"] != "":
		return verb(o.Action) + ": " + what["contract"] + "/" + what["queue"]
	case what["queue"] != "":
		return verb(o.Action) + ": queue " + what["queue"]
	case what["number"] != "":
		return verb(o.Action) + ": " + pluralize(len(o.Jobs.Numbers), "marked job")
	case what["webhook"] != "":
		return verb(o.Action) + ": deliveries of a webhook"
	case what["contract"] != "":
		return verb(o.Action) + ": " + what["contract"]
	case o.DeadLetters != nil:
		return verb(o.Action) + ": dead letters"
	}
	return verb(o.Action) + ": jobs"
}
