package cli

import (
	"context"
	"iter"
	"strings"

	"github.com/millrace/millrace/client"
)

// flagNames are the names that values of flags have.
var flagNames = map[string]Names{
	"action":      auditActions,
	"client":      clientNames,
	"contract":    contractNames,
	"fingerprint": fingerprintNames,
	"state":       stateNames,
	"target":      auditTargets,
}

// argumentNames are the names that the arguments of the commands below a noun have.
var argumentNames = map[string]Names{
	"clients":   clientNames,
	"inbox":     refusedNames,
	"nodes":     nodeNames,
	"queues":    queueNames,
	"schedules": scheduleNames,
	"webhooks":  webhookNames,
	"workers":   workerNames,
}

// contractNames are the contracts that the server has.
func contractNames(ctx context.Context, server *client.Admin) iter.Seq2[string, error] {
	return distinct(server.Contracts(ctx), func(c client.AdminContract) string {
		return c.Contract
	})
}

// stateNames are the states of the jobs of all contracts.
func stateNames(ctx context.Context, server *client.Admin) iter.Seq2[string, error] {
	return distinct(func(yield func(string, error) bool) {
		for c, err := range server.Contracts(ctx) {
			if err != nil {
				yield("", err)
				return
			}
			for _, state := range c.States {
				if !yield(state, nil) {
					return
				}
			}
		}
	}, func(state string) string { return state })
}

// fingerprintNames are the reasons of dead letters that were not replayed.
func fingerprintNames(ctx context.Context, server *client.Admin) iter.Seq2[string, error] {
	return distinct(server.DeadLetterGroups(ctx, "", 0),
		func(g client.AdminDeadLetterGroup) string { return g.Fingerprint })
}

// clientNames are the clients that the server lists.
func clientNames(ctx context.Context, server *client.Admin) iter.Seq2[string, error] {
	return distinct(server.Clients(ctx, 0), func(c client.AdminClient) string { return c.ID })
}

// nodeNames are the nodes that share the store.
func nodeNames(ctx context.Context, server *client.Admin) iter.Seq2[string, error] {
	return distinct(server.Nodes(ctx), func(n client.AdminNode) string { return n.Name })
}

// workerNames are the workers that the server lists. One may be listed several times (G-AD-13).
func workerNames(ctx context.Context, server *client.Admin) iter.Seq2[string, error] {
	return distinct(server.Workers(ctx), func(w client.AdminWorker) string { return w.Name })
}

// queuesOf are the queues of a contract that the server lists, without the contract where --queue
// takes that.
func queuesOf(contract string) Names {
	return func(ctx context.Context, server *client.Admin) iter.Seq2[string, error] {
		return distinct(server.Queues(ctx, client.AdminQueueFilter{Contract: contract,
			PageSize: maxPage}), func(q client.AdminQueue) string {
			if strings.Contains(q.Queue, "/") {
				return QueueName(q.Contract, q.Queue)
			}
			return q.Queue
		})
	}
}

// queueNames are the queues that the server lists.
func queueNames(ctx context.Context, server *client.Admin) iter.Seq2[string, error] {
	return distinct(server.Queues(ctx, client.AdminQueueFilter{PageSize: maxPage}),
		func(q client.AdminQueue) string { return QueueName(q.Contract, q.Queue) })
}

// scheduleNames are the schedules that the server has.
func scheduleNames(ctx context.Context, server *client.Admin) iter.Seq2[string, error] {
	return distinct(server.Schedules(ctx, maxPage), func(s client.AdminSchedule) string {
		return s.Name
	})
}

// webhookNames are the webhooks that the server lists.
func webhookNames(ctx context.Context, server *client.Admin) iter.Seq2[string, error] {
	return distinct(server.Webhooks(ctx, client.AdminWebhookFilter{}),
		func(h client.AdminWebhook) string { return h.ID })
}

// refusedNames are the requests in the inbox that were refused.
func refusedNames(ctx context.Context, server *client.Admin) iter.Seq2[string, error] {
	return distinct(server.Inbox(ctx, client.AdminInboxFilter{State: client.AdminInboxRefused}),
		func(r client.AdminInboxRequest) string { return r.ID })
}

// auditActions are the actions of the newest entries of the audit.
func auditActions(ctx context.Context, server *client.Admin) iter.Seq2[string, error] {
	return distinct(server.Audit(ctx, client.AdminAuditFilter{PageSize: maxPage}),
		func(e client.AdminAuditEntry) string { return e.Action })
}

// auditTargets are the targets of the newest entries of the audit.
func auditTargets(ctx context.Context, server *client.Admin) iter.Seq2[string, error] {
	return distinct(server.Audit(ctx, client.AdminAuditFilter{PageSize: maxPage}),
		func(e client.AdminAuditEntry) string { return e.Target })
}
