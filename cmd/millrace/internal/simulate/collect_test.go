package simulate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/client"
)

// An account is read for as long as the server answers, however many jobs there are, and no longer.
func TestSimulateReadsOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &simulator{flags: &flags{settleTimeout: time.Minute},
			clients: []*forgeClient{{}, {}}}
		started := time.Now()
		err := s.forEachClient(t.Context(), func(ctx context.Context, _ *forgeClient) error {
			for range 60 {
				time.Sleep(30 * time.Second)
				s.resetSilence()
			}
			return ctx.Err()
		})
		if took := time.Since(started); err != nil || took != 30*time.Minute {
			t.Errorf("read for %s: %v", took, err)
		}
		started = time.Now()
		err = s.forEachClient(t.Context(), func(ctx context.Context, _ *forgeClient) error {
			<-ctx.Done()
			return ctx.Err()
		})
		if took := time.Since(started); !errors.Is(err, errServerSilent) || took != time.Minute {
			t.Errorf("silent for %s: %v", took, err)
		}
	})
}

// So are the deliveries, which come in pages.
func TestSimulateReadsDeliveriesOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		left := 60
		slow := roundTrip(func(r *http.Request) (*http.Response, error) {
			select {
			case <-time.After(30 * time.Second):
			case <-r.Context().Done():
				return nil, r.Context().Err()
			}
			left--
			page := fmt.Sprintf(`{"items":[{"delivery_id":"%d"}],"next_cursor":"%d","has_more":%t}`,
				left, left, left > 0)
			return &http.Response{StatusCode: http.StatusOK,
				Header: http.Header{"Content-Type": {"application/json"}},
				Body:   io.NopCloser(strings.NewReader(page)), Request: r}, nil
		})
		api, err := client.New(client.Config{BaseURL: "http://localhost",
			HTTPClient: &http.Client{Transport: slow}, RequestTimeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		s := &simulator{flags: &flags{settleTimeout: time.Minute},
			clients: []*forgeClient{{forge: api.ForgeRun()}}}
		h := &receiver{webhookID: "w"}
		err = s.forEachClient(t.Context(), func(ctx context.Context, c *forgeClient) error {
			return s.readDeliveries(ctx, c, h)
		})
		if err != nil || len(h.deliveries) != 60 {
			t.Errorf("read %d: %v", len(h.deliveries), err)
		}
	})
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
