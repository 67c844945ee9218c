package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/millrace/millrace/client"
)

// Whatever a handler leaves, a real server is told of the end of its run: nothing waits for a lease to be over.
func TestJobWorker_endsOnServer(t *testing.T) {
	t.Parallel()
	c := flowServer(t)
	nested := json.RawMessage(strings.Repeat("[", 600) + strings.Repeat("]", 600))
	for name, tt := range map[string]struct {
		result json.RawMessage
		err    error
		want   client.TaskFlowStatus
	}{
		"a result":                    {json.RawMessage(`"\ud800\u0000"`), nil, client.TaskCompleted},
		"a result that is too large":  {json.RawMessage(`"` + strings.Repeat("x", 5<<20) + `"`), nil, client.TaskFailed},
		"a result that is too deep":   {nested, nil, client.TaskFailed},
		"a result that is no UTF-8":   {json.RawMessage("\"\xff\""), nil, client.TaskFailed},
		"an error with U+0000":        {nil, client.Final(errors.New("a\x00\xffb")), client.TaskFailed},
		"an error that is long":       {nil, client.Final(errors.New(strings.Repeat("ü", 1<<20))), client.TaskFailed},
		"an error of no kind":         {nil, &client.JobError{Err: errors.New("e"), Final: true}, client.TaskFailed},
		"an error of a kind too long": {nil, &client.JobError{Err: errors.New("e"), Type: strings.Repeat("t", 256), Final: true}, client.TaskFailed},
		"an error of a kind with NUL": {nil, &client.JobError{Err: errors.New("e"), Type: "\x00", Final: true}, client.TaskFailed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			queue := fmt.Sprintf("q%x", name)
			job, err := c.TaskFlow().Create(t.Context(), client.TaskFlowSpec{Name: name, Queue: queue[:min(len(queue), 64)]})
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			w := &client.JobWorker{API: c.WorkerAPI(), Contract: client.ContractTaskFlow, AfterRun: func(client.ClaimedJob) { stop() },
				Handlers: map[string]client.JobHandler{job.Queue: func(context.Context, *client.JobRun) (json.RawMessage, error) { return tt.result, tt.err }}}
			if err := w.Run(ctx); err != nil {
				t.Fatal(err)
			}
			if job, err = c.TaskFlow().Get(t.Context(), job.ID); err != nil || job.Status != tt.want {
				t.Errorf("got %s, %v, want %s", job.Status, err, tt.want)
			}
			if done := job.Status == client.TaskCompleted; done && string(job.Result) != string(tt.result) || !done && job.LastError == nil {
				t.Errorf("the job shows the result %.20s and the error %v", job.Result, job.LastError)
			}
		})
	}
}
