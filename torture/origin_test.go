package main

import (
	"errors"
	"io"
	"net/http"
	"testing"
)

// TestOrigin: each kind of resource answers as its name says, and a client without a guard reaches
// the canary, which would see nothing otherwise whatever a server does.
func TestOrigin(t *testing.T) {
	t.Parallel()
	c, err := newCanary()
	if err != nil {
		t.Fatal(err)
	}
	defer c.server.Close()
	o, err := newOrigin(c)
	if err != nil {
		t.Fatal(err)
	}
	defer o.server.Close()
	client := &http.Client{Transport: &http.Transport{}} // no proxy
	defer client.CloseIdleConnections()
	content := contentOf("m1", "r0")
	for _, want := range []struct {
		kind   string
		status int
		body   string
		err    error
	}{
		{kindPlain, http.StatusOK, content, nil},
		{kindOnce, http.StatusServiceUnavailable, "", nil},
		{kindOnce, http.StatusOK, content, nil},
		{kindCut, http.StatusOK, content[:len(content)/2], io.ErrUnexpectedEOF},
		{kindCut, http.StatusOK, content, nil},
		{kindMoved, http.StatusOK, content, nil},
		{kindGone, http.StatusNotFound, "404 page not found\n", nil},
		{kindForbidden, http.StatusNoContent, "", nil},
	} {
		resp, err := client.Get(o.url + "/" + want.kind + "/m1/r0")
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != want.status || string(body) != want.body ||
			!errors.Is(err, want.err) {
			t.Errorf("%s: %d with %d bytes, %v", want.kind, resp.StatusCode, len(body), err)
		}
	}
	if hits := c.reached(); len(hits) != 1 {
		t.Errorf("the canary got %q", hits)
	}
}

// TestOutages: a 500 is a defect, but for what FetchBox answers in an outage.
func TestOutages(t *testing.T) {
	t.Parallel()
	const outage = `{"message":"a dependency of the server is unavailable; try again"}`
	const refusal = `{"message":"the streams of this node are not those of the other nodes on it"}`
	for _, c := range []struct {
		only, contract, body string
		want                 bool
	}{
		{"", fetchbox, outage, true},
		{"", relay, outage, false},
		{"", fetchbox, "it broke", false},
		{"", fetchbox, refusal, false},
		{faultStreamsWiped, fetchbox, refusal, true},
	} {
		a := &actor{run: &run{plan: &plan{Only: c.only}}}
		if got := a.namesOutage(&op{Contract: c.contract}, []byte(c.body)); got != c.want {
			t.Errorf("%+v: %t", c, got)
		}
	}
}
