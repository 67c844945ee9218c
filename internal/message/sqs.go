package message

import (
	"context"
	"errors"
	"log/slog"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	gcaws "gocloud.dev/aws"
	"gocloud.dev/pubsub"
	"gocloud.dev/pubsub/awssnssqs"
	"gocloud.dev/pubsub/batcher"

	"github.com/millrace/millrace/internal/clock"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/outage"
	"github.com/millrace/millrace/internal/telemetry"
)

// SQS is a queue of Amazon SQS or of a server with its protocol. The visibility timeout is a
// setting of that queue.
type SQS struct {
	queue   string // its URL
	client  *sqs.Client
	topic   *pubsub.Topic
	log     *slog.Logger
	monitor *outage.Monitor
}

// pollWait is how long one poll of an empty queue waits for a message.
const pollWait = 10 * time.Second

// OpenSQS opens the queue of a URL such as
// awssqs://sqs.eu-west-1.amazonaws.com/123456789012/images?region=eu-west-1. Credentials come from
// the sources that AWS clients use. The queue is not contacted before the first operation. monitor
// records whether the queue answers, and may be nil.
func OpenSQS(ctx context.Context, rawURL string, log *slog.Logger, monitor *outage.Monitor) (*SQS,
	error) {
	invalidURL := func(err error) error {
		return &job.Error{Kind: job.Invalid, Op: "message.open",
			Msg: "the URL of the queue cannot be used", Err: err}
	}
	u, err := url.Parse(rawURL)
	if err != nil || u.Scheme != awssnssqs.SQSScheme {
		return nil, invalidURL(err)
	}
	settings, err := gcaws.V2ConfigFromURLParams(ctx, u.Query())
	if err != nil {
		return nil, invalidURL(err)
	}
	scheme := "https"
	if strings.HasPrefix(u.Query().Get("endpoint"), "http://") { // a local server
		scheme = "http"
	}
	s := &SQS{queue: scheme + "://" + u.Host + u.Path, client: sqs.NewFromConfig(settings),
		log: log, monitor: monitor}
	s.topic = awssnssqs.OpenSQSTopic(ctx, s.client, s.queue, nil)
	return s, nil
}

// Send implements Queue. The library combines the messages to batches.
func (s *SQS) Send(ctx context.Context, all []Message) error {
	report := s.monitor.Begin()
	failures := make([]error, len(all))
	var sends sync.WaitGroup
	for i := range all {
		sends.Go(func() { failures[i] = s.topic.Send(ctx, &pubsub.Message{Body: all[i].Body}) })
	}
	sends.Wait()
	for _, err := range failures { // the first one is reported
		if err != nil {
			err = wrapError(ctx, "message.send", err)
			report(err)
			return err
		}
	}
	report(nil)
	return nil
}

// wrapError gives an error a kind.
func wrapError(ctx context.Context, op string, err error) error {
	e := &job.Error{Kind: job.Unavailable, Op: op, Err: err}
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		e.Kind = job.Timeout
	case ctx.Err() != nil:
		e.Kind = job.Aborted
	}
	return e
}

// Ping implements Queue. It reads an attribute of the queue.
func (s *SQS) Ping(ctx context.Context) error {
	return s.monitor.Do(func() error {
		_, err := s.client.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{
			QueueUrl:       &s.queue,
			AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameQueueArn},
		})
		if err != nil {
			return wrapError(ctx, "message.ping", err)
		}
		return nil
	})
}

// The pauses between attempts to reach the queue.
const (
	minPause = 100 * time.Millisecond
	maxPause = 5 * time.Second
)

// Receive implements Queue by long polls.
func (s *SQS) Receive(ctx context.Context, handle func(context.Context, Delivery)) {
	backoff := clock.Backoff{Min: minPause, Max: maxPause}
	for ctx.Err() == nil {
		err := s.receive(ctx, func(ctx context.Context, d Delivery) {
			backoff.Reset()
			handle(ctx, d)
		})
		if ctx.Err() != nil {
			return
		}
		s.monitor.Begin()(wrapError(ctx, "message.receive", err))
		backoff.Sleep(ctx)
		// A poll of an empty queue does not return, so Ping finds out when the queue answers.
		_ = s.Ping(ctx)
	}
}

// receive polls until the first error, after which the subscription of the library is unusable.
func (s *SQS) receive(ctx context.Context, handle func(context.Context, Delivery)) error {
	// One message is requested at a time: the visibility timeout of messages that wait in memory
	// would already run.
	subscription := awssnssqs.OpenSubscription(ctx, s.client, s.queue,
		&awssnssqs.SubscriptionOptions{
			Raw:                   true,
			NackLazy:              true,
			WaitTime:              pollWait,
			ReceiveBatcherOptions: batcher.Options{MaxBatchSize: 1, MaxHandlers: 1},
		})
	stopOnce := sync.OnceFunc(func() { // Shutdown sends the last acknowledgements
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		if err := subscription.Shutdown(ctx); err != nil {
			s.log.Debug("a subscription was not closed in time", telemetry.ErrorMessage,
				err.Error())
		}
	})
	defer stopOnce()
	for {
		// The Receive of the library leaks a goroutine when its own context ends just as a
		// message arrives, so it gets one that does not end.
		stop := context.AfterFunc(ctx, stopOnce)
		m, err := subscription.Receive(context.WithoutCancel(ctx))
		stop()
		if err != nil {
			return err
		}
		handle(ctx, Delivery{Body: m.Body, Ack: m.Ack, Nak: m.Nack})
	}
}

// closeTimeout bounds the sending of messages and acknowledgements under way.
const closeTimeout = 3 * time.Second

// Close implements Queue. It sends the messages under way.
func (s *SQS) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if err := s.topic.Shutdown(ctx); err != nil {
		s.log.Warn("the queue was not closed in time", telemetry.ErrorMessage, err.Error())
	}
}
