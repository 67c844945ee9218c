package main

import (
	"maps"
	"net/http"
	"slices"
	"time"
)

// forgeMoves are the changes of state that the contract allows.
var forgeMoves = map[string][]string{
	"":         {"CREATED"},
	"CREATED":  {"QUEUED", "CANCELED"},
	"QUEUED":   {"ASSIGNED", "CANCELED"},
	"ASSIGNED": {"RUNNING", "QUEUED", "CANCELED"},
	"RUNNING":  {"SUCCEEDED", "FAILED", "CANCELED"},
	"FAILED":   {"QUEUED"},
}

// checkForge checks the promises of ForgeRun alone: the events of its jobs (I13), their reports
// (I14), webhooks (I11), and that the clients do not reach each other (I10).
func (a *audit) checkForge() {
	byID := map[string]*sent{}
	for _, s := range a.sent {
		if s.contract == forgerun && s.Job != "" {
			byID[s.Job] = s
		}
	}
	for _, o := range a.ops {
		a.checkForgeRequest(o, byID)
	}
	for _, id := range slices.Sorted(maps.Keys(a.final.Forge)) {
		j := a.final.Forge[id]
		a.checkEvents(id, j)
		if s := byID[id]; s != nil && s.Queue != j.Client {
			a.add("I10 isolation", "job %s of %s is shown to %s", id, s.Queue, j.Client)
		}
	}
	for _, client := range slices.Sorted(maps.Keys(a.final.Deliveries)) {
		a.checkDeliveries(client, a.final.Deliveries[client])
	}
}

// checkForgeRequest checks a cancel or a retry, and that a client reaches no job of another.
func (a *audit) checkForgeRequest(o *op, byID map[string]*sent) {
	if o.Contract != forgerun || o.Class != classOK || o.Verb == "submit" {
		return
	}
	s := byID[o.Job]
	if o.Verb == "foreign" || (s != nil && s.Queue != o.Queue) {
		a.add("I10 isolation", "op %d: %s of job %s by another client was accepted", o.ID, o.Verb,
			o.Job)
	}
	if j := a.final.Forge[o.Job]; o.Verb == "cancel" && o.Body == "CANCELED" &&
		j.State != "CANCELED" {
		a.add("I1 no acknowledged loss", "job %s: cancel of op %d is lost: %s", o.Job, o.ID,
			j.State)
	}
}

// checkEvents checks that the events of a job lead from nothing to its state by moves that are
// allowed, and that its report has them.
func (a *audit) checkEvents(id string, j forgeJob) {
	state, events := "", a.final.Events[id]
	for _, e := range events {
		if e.Prev != state || !slices.Contains(forgeMoves[e.Prev], e.Next) {
			a.add("I13 legal events", "job %s: %s is followed by %s to %s", id, state, e.Prev,
				e.Next)
		}
		state = e.Next
	}
	if state != j.State {
		a.add("I13 legal events", "job %s is %s, its events end with %s", id, j.State, state)
	}
	same := slices.EqualFunc(events, j.Events, func(x, y forgeEvent) bool {
		return x.Prev == y.Prev && x.Next == y.Next
	})
	if !j.HasReport || !same {
		a.add("I14 accounting", "job %s is %s, with %d events, and %d in its report", id, j.State,
			len(events), len(j.Events))
	}
}

// checkDeliveries checks that each event came to the webhook of its client at least once, signed,
// under one id, and after those before it; and no event of another client.
func (a *audit) checkDeliveries(client string, all []delivery) {
	first := map[string]int{} // the number of the first delivery, from 1, by event
	for i, d := range all {
		if first[d.ID] == 0 {
			first[d.ID] = i + 1
		}
		if d.Forged {
			a.add("I11 webhooks", "delivery of event %s is not signed by the secret", d.ID)
		}
		if j, known := a.final.Forge[d.Job]; known && j.Client != client {
			a.add("I10 isolation", "%s got event %s of job %s, which is of %s", client, d.ID, d.Job,
				j.Client)
		}
	}
	for id, j := range a.final.Forge {
		if j.Client != client {
			continue
		}
		previous := 0
		for _, e := range j.Events {
			at := first[e.ID]
			if at == 0 {
				a.add("I11 webhooks", "job %s: event %s to %s was not delivered", id, e.ID, e.Next)
				continue
			}
			if at < previous {
				a.add("I11 webhooks", "job %s: event %s to %s was delivered before the one before",
					id, e.ID, e.Next)
			}
			previous = at
		}
	}
	if n := a.final.undelivered(client, all); n > 0 {
		a.add("I11 webhooks", "%d events of %s were not accepted by its webhook", n, client)
	}
}

// rateCounts are the requests of the limited client.
type rateCounts struct {
	Accepted int `json:"accepted"`
	Max      int `json:"max_in_a_minute"` // of these
	Refused  int `json:"refused"`
}

// checkRate checks a part of I18: in no minute of the clock were more requests of the limited
// client accepted than it may send. One that was sent in one minute and answered in the next may be
// of either, and is of none here, as is one whose outcome is unknown.
func (a *audit) checkRate() {
	accepted := map[time.Time]int{}
	for _, o := range a.ops {
		if o.Contract != forgerun || o.Verb != "submit" || o.Made[0].Queue != limitedClient {
			continue
		}
		if o.Status == http.StatusTooManyRequests {
			a.limited.Refused++
		}
		if o.Class != classOK {
			continue
		}
		a.limited.Accepted++
		minute := time.UnixMicro(o.Invoked).Truncate(time.Minute)
		if minute.Equal(time.UnixMicro(o.Returned).Truncate(time.Minute)) {
			accepted[minute]++
		}
	}
	for minute, n := range accepted {
		a.limited.Max = max(a.limited.Max, n)
		if n > clientRate {
			a.add("I18 bounded", "%d requests of a client that may send %d were accepted in the "+
				"minute of %s", n, clientRate, minute.UTC().Format(time.TimeOnly))
		}
	}
}
