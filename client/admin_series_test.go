package client_test

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/millrace/millrace/client"
)

// TestAdminSeries reads series in steps that are asked for and that the server chooses (AD-060).
func TestAdminSeries(t *testing.T) {
	t.Parallel()
	api, with := serveAdmin(t, withRelay(t))
	operator, ctx := with(api.Token()), t.Context()
	s, err := operator.Series(ctx, client.AdminMetricSubmitted, client.AdminSeriesQuery{})
	if err != nil || s.Metric != client.AdminMetricSubmitted || s.Step != "10s" || len(s.Points) < 360 ||
		!s.Points[len(s.Points)-1].Partial || *s.Points[0].Value != 0 {
		t.Errorf("got %+v, %v", s, err)
	}
	s, err = operator.Series(ctx, client.AdminMetricRunP95, client.AdminSeriesQuery{Contract: "relay",
		Queue: "a b", From: s.To.Add(-24 * time.Hour), To: s.To, Step: time.Hour})
	if err != nil || s.Contract != "relay" || s.Queue != "a b" || s.Step != "1h" ||
		len(s.Points) < 24 || s.Points[0].Value != nil {
		t.Errorf("got %+v, %v", s, err)
	}
	var refused *client.Error
	if _, err = operator.Series(ctx, "speed", client.AdminSeriesQuery{}); !errors.As(err, &refused) ||
		refused.Status != http.StatusBadRequest {
		t.Errorf("got %v", err)
	}
}
