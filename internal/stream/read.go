package stream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/internal/job"
)

// Entry is a stored message. Data belongs to the caller.
type Entry struct {
	Offset  uint64
	Subject string
	Data    []byte
	Time    time.Time // when it was stored
}

// request is a direct request for messages of a stream, without a consumer.
type request struct {
	Seq       uint64     `json:"seq,omitempty"`
	NextFor   string     `json:"next_by_subj,omitempty"`
	Batch     int        `json:"batch,omitempty"`
	MaxBytes  int        `json:"max_bytes,omitempty"`
	StartTime *time.Time `json:"start_time,omitempty"`
}

// maxAnswerBytes bounds one answer of the server; a longer list takes several requests.
const maxAnswerBytes = 8 << 20

// Read returns the messages of a subject from an offset on, in order, up to limit or the present
// end of the stream. In a cluster a copy may answer whose end is a moment behind. An offset beyond
// the end is no error and has no messages; gaps, from messages of other subjects or that were
// removed, are skipped.
func (s *Streams) Read(ctx context.Context, stream, subject string, from uint64,
	limit int) ([]Entry, error) {
	if !s.firstUse.isReady() {
		return nil, nil
	}
	ctx, cancel := withAnswerTimeout(ctx)
	defer cancel()
	var all []Entry
	for {
		part, more, err := s.fetch(ctx, stream,
			request{Seq: max(from, 1), NextFor: subject, Batch: limit - len(all),
				MaxBytes: maxAnswerBytes})
		if err != nil {
			return nil, wrapError("stream.read", "", err)
		}
		all = append(all, part...)
		if len(part) == 0 || len(all) >= limit || !more {
			return all, nil
		}
		from = part[len(part)-1].Offset + 1
	}
}

// First returns the offset of the first message of a subject. It is NotFound if there is none.
func (s *Streams) First(ctx context.Context, stream, subject string) (uint64, error) {
	found, err := s.Read(ctx, stream, subject, 0, 1)
	if err != nil {
		return 0, err
	}
	if len(found) == 0 {
		return 0, &job.Error{Kind: job.NotFound, Op: "stream.first",
			Msg: "the stream has no message of the subject"}
	}
	return found[0].Offset, nil
}

// Get returns one message. It is NotFound if the message does not exist or was removed. In a
// cluster the leader of the stream answers, which has all acknowledged messages; a copy may lag
// behind.
func (s *Streams) Get(ctx context.Context, stream string, offset uint64) (e Entry, err error) {
	ctx, cancel := withAnswerTimeout(ctx)
	defer cancel()
	notFound := &job.Error{Kind: job.NotFound, Op: "stream.get",
		Msg: "the stream has no message at that offset"}
	if offset == 0 || !s.firstUse.isReady() {
		return Entry{}, notFound
	}
	err = s.retryRecreated(ctx, s.specByName(stream), func() error {
		return s.retryUntilAnswered(ctx, func(ctx context.Context) (err error) {
			e, err = s.getFromLeader(ctx, stream, offset)
			return err
		})
	})
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		err = notFound
	}
	return e, wrapError("stream.get", "", err)
}

// getFromLeader requests a message from the leader of the stream.
func (s *Streams) getFromLeader(ctx context.Context, stream string, offset uint64) (Entry, error) {
	answer, err := s.conn.RequestWithContext(ctx, "$JS.API.STREAM.MSG.GET."+stream,
		fmt.Appendf(nil, `{"seq":%d}`, offset))
	if err != nil {
		return Entry{}, err
	}
	var found struct {
		Message struct {
			Seq     uint64    `json:"seq"`
			Subject string    `json:"subject"`
			Data    []byte    `json:"data"`
			Time    time.Time `json:"time"`
		} `json:"message"`
		Error *jetstream.APIError `json:"error"`
	}
	if err := json.Unmarshal(answer.Data, &found); err != nil {
		return Entry{}, err
	}
	if found.Error != nil {
		return Entry{}, found.Error
	}
	m := &found.Message
	return Entry{Offset: m.Seq, Subject: m.Subject, Data: m.Data, Time: m.Time}, nil
}

// Newest returns up to limit messages of a subject before an offset, or before the end when the
// offset is zero, the newest first. It reads ranges of the stream backwards, each twice as long as
// the one before, so it is meant for streams whose messages are mostly of the subject.
func (s *Streams) Newest(ctx context.Context, stream, subject string, before uint64,
	limit int) ([]Entry, error) {
	if !s.firstUse.isReady() {
		return nil, nil
	}
	ctx, cancel := withAnswerTimeout(ctx)
	defer cancel()
	first, last, err := s.offsetRange(ctx, stream)
	if err != nil {
		return nil, wrapError("stream.newest", "", err)
	}
	if before == 0 || before > last {
		before = last + 1
	}
	var all []Entry // oldest first
	for span := uint64(limit); len(all) < limit && before > first; span *= 2 {
		start := max(first, before-min(span, before))
		part, err := s.readRange(ctx, stream, subject, start, before)
		if err != nil {
			return nil, wrapError("stream.newest", "", err)
		}
		all, before = append(part, all...), start
	}
	slices.Reverse(all)
	return all[:min(limit, len(all))], nil
}

// readRange returns the messages of a subject with from <= offset < to.
func (s *Streams) readRange(ctx context.Context, stream, subject string, from, to uint64) ([]Entry,
	error) {
	found, err := s.Read(ctx, stream, subject, from, int(to-from))
	if end := slices.IndexFunc(found, func(e Entry) bool { return e.Offset >= to }); end >= 0 {
		found = found[:end]
	}
	return found, err
}

// offsetRange returns the first and the last offset of a stream.
func (s *Streams) offsetRange(ctx context.Context, stream string) (first, last uint64, err error) {
	err = s.retryRecreated(ctx, s.specByName(stream), func() error {
		info, err := s.info(ctx, stream)
		if err != nil {
			return err
		}
		first, last = info.State.FirstSeq, info.State.LastSeq
		return nil
	})
	return first, last, err
}

// info returns configuration and state of a stream. It asks the leader, so its state has all
// acknowledged messages.
func (s *Streams) info(ctx context.Context, stream string) (info *jetstream.StreamInfo, err error) {
	err = s.retryUntilAnswered(ctx, func(ctx context.Context) error {
		found, err := s.js.Stream(ctx, stream)
		if err != nil {
			return err
		}
		info = found.CachedInfo()
		return nil
	})
	return info, err
}

// fetch returns one answer of the server; more reports that there are further messages. It creates
// a stream that is missing, which then has no messages.
func (s *Streams) fetch(ctx context.Context, stream string, r request) (found []Entry, more bool,
	err error) {
	err = s.retryRecreated(ctx, s.specByName(stream), func() error {
		return s.retryUntilAnsweredWithin(ctx, firstAnswerTimeout, func(ctx context.Context) error {
			found, more, err = s.sendRequest(ctx, stream, r)
			return err
		})
	})
	return found, more, err
}

// sendRequest sends a direct request, whose answer is one message for each entry and one that ends
// them.
func (s *Streams) sendRequest(ctx context.Context, stream string, r request) (found []Entry,
	more bool, err error) {
	body, err := json.Marshal(r)
	if err != nil {
		return nil, false, err
	}
	inbox := s.conn.NewInbox()
	answers, err := s.conn.SubscribeSync(inbox)
	if err != nil {
		return nil, false, err
	}
	defer func() { _ = answers.Unsubscribe() }()
	if err := s.conn.PublishRequest("$JS.API.DIRECT.GET."+stream, inbox, body); err != nil {
		return nil, false, err
	}
	for {
		msg, err := answers.NextMsgWithContext(ctx)
		if err != nil {
			return nil, false, s.contextCause(ctx, err)
		}
		switch status := msg.Header.Get("Status"); status {
		case "":
			e, err := parseEntry(msg)
			if err != nil {
				return nil, false, err
			}
			found = append(found, e)
		case "204": // the end of the answer
			return found, msg.Header.Get("Nats-Num-Pending") != "0", nil
		case "404": // no message from there on
			return found, false, nil
		case "503":
			return nil, false, nats.ErrNoResponders
		default:
			return nil, false, fmt.Errorf("the server answers %s %s", status,
				msg.Header.Get("Description"))
		}
	}
}

// parseEntry reads the headers that the server adds to a message.
func parseEntry(msg *nats.Msg) (Entry, error) {
	offset, err := strconv.ParseUint(msg.Header.Get(jetstream.SequenceHeader), 10, 64)
	stored, err2 := time.Parse(time.RFC3339Nano, msg.Header.Get(jetstream.TimeStampHeaer))
	return Entry{Offset: offset, Subject: msg.Header.Get(jetstream.SubjectHeader), Data: msg.Data,
		Time: stored}, errors.Join(err, err2)
}
