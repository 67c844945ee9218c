package main

import (
	"bytes"
	"compress/gzip"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// hostileRequests and hostileSeed are flags of the tests of hostile input:
//
//	go test ./cmd/millrace -run 'TestHostile|TestIsolation' -timeout 0 -args -hostile 1000000
var (
	hostileRequests = flag.Int("hostile", 2000,
		"random requests to each database; with 100000 or more every text is sent everywhere")
	hostileSeed = flag.Uint64("hostile-seed", 1, "of the random hostile requests")
)

// isFullHostile reports whether all texts are sent to all places, and not a third of them.
func isFullHostile() bool { return *hostileRequests >= 100_000 }

// TestHostileLoad: random requests, each a valid one in which something is wrong, get no answer of
// a defect, and leave the server as it was: ready, and without memory that grows.
func TestHostileLoad(t *testing.T) {
	t.Parallel()
	onHostile(t, func(t *testing.T, n *hostileNode) {
		n.plant(t)
		n.load(t, 200, 0)
		before := n.memory(t)
		started := time.Now()
		statuses := n.load(t, *hostileRequests, *hostileSeed)
		after := n.memory(t)
		t.Logf("%d requests in %.0f s, seed %d, MiB before and after: %d, %d; statuses: %v",
			*hostileRequests, time.Since(started).Seconds(), *hostileSeed, before, after, statuses)
		if after > before+256 {
			t.Errorf("the server has %d MiB more", after-before)
		}
		n.wantHealthy(t)
		n.wantNoSecrets(t)
	})
}

// load sends random requests, some at a time, and returns how many had each status.
func (n *hostileNode) load(t *testing.T, requests int, seed uint64) map[int]int {
	t.Helper()
	statuses, mu := map[int]int{}, sync.Mutex{}
	var next atomic.Int64
	var sending sync.WaitGroup
	m := n.newMaker()
	for sender := range 8 {
		sending.Go(func() {
			random := rand.New(rand.NewPCG(seed, uint64(sender)))
			for next.Add(1) <= int64(requests) && !t.Failed() {
				status := n.sendRandom(t, m, random)
				mu.Lock()
				statuses[status]++
				mu.Unlock()
			}
		})
	}
	sending.Wait()
	return statuses
}

// sendRandom sends one random request and returns the status of the answer; 0 where the connection
// ended without one, as with some requests that are too large.
func (n *hostileNode) sendRandom(t *testing.T, m *maker, random *rand.Rand) int {
	t.Helper()
	var r hostileRoute
	for r.pattern == "" || r.isEndless() || strings.HasSuffix(r.pattern, "/token/rotate") ||
		strings.HasSuffix(r.pattern, "/drain") || strings.HasSuffix(r.pattern, "/logout") {
		r = n.routes[random.IntN(len(n.routes))]
	}
	body := []byte(randomBody(m, r, random))
	path := randomPath(r.path(t, n.values), random)
	for _, p := range r.parameters {
		if p.Value.In == "query" && random.IntN(4) == 0 && p.Value.Name != "follow" {
			path += map[bool]string{true: "&", false: "?"}[strings.Contains(path, "?")] +
				url.Values{p.Value.Name: {randomText(random)}}.Encode()
		}
	}
	req, err := http.NewRequestWithContext(t.Context(), r.method, n.url+path, bytes.NewReader(body))
	if err != nil {
		return -1 // a URL that Go does not send
	}
	req.Header.Set("Content-Type", randomOf(random, "application/json", "application/json",
		"application/json", "text/plain", "image/jpeg", "multipart/form-data; boundary=x",
		"application/x-www-form-urlencoded", ";", ""))
	if random.IntN(8) == 0 {
		req.Header.Set("Content-Encoding", randomOf(random, "gzip", "br", "identity", "gzip, gzip"))
	}
	authentication := n.rightfulHeader(r)
	if random.IntN(16) == 0 {
		authentication = []string{"Authorization", "Bearer " + randomHeader(random)}
	}
	req.Header.Set(authentication[0], authentication[1])
	for _, p := range r.parameters {
		if p.Value.In == "header" && random.IntN(3) == 0 {
			req.Header.Set(p.Value.Name, randomHeader(random))
		}
	}
	req.Header.Set("Prefer", randomHeader(random))
	resp, err := n.raw.Do(req)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	if resp.StatusCode >= 500 {
		t.Errorf("%s %.300s %.1000q: got %d %.300s", r.method, path, body, resp.StatusCode, text)
	}
	return resp.StatusCode
}

// randomOf returns one of several.
func randomOf[T any](random *rand.Rand, all ...T) T { return all[random.IntN(len(all))] }

// randomText returns a hostile text or random bytes.
func randomText(random *rand.Rand) string {
	if random.IntN(2) == 0 {
		return randomOf(random, hostileBytes...)
	}
	text := make([]byte, random.IntN(40))
	for i := range text {
		text[i] = byte(random.Uint32())
	}
	return string(text)
}

// randomHeader returns a text that Go sends as the value of a header.
func randomHeader(random *rand.Rand) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return 'x'
		}
		return r
	}, randomText(random))
}

// randomPath changes a part of a path, or leaves it.
func randomPath(path string, random *rand.Rand) string {
	if random.IntN(3) != 0 {
		return path
	}
	parts := strings.Split(path, "/")
	i := 1 + random.IntN(len(parts)-1)
	switch random.IntN(4) {
	case 0:
		parts = slices.Delete(parts, i, i+1)
	case 1:
		parts = slices.Insert(parts, i, escape(randomText(random)))
	default:
		parts[i] = escape(randomText(random))
	}
	return "/" + strings.TrimLeft(strings.Join(parts, "/"), "/")
}

// randomValues are JSON values that are large, deep, or none.
var randomValues = []string{"null", "true", "-0", "1e400", "1E-400", "-1", "1.5",
	"99999999999999999999", strings.Repeat("9", 5000), strings.Repeat("[", 5000), "{}", "[]", "[[]]",
	strings.Repeat("[", 600) + strings.Repeat("]", 600), `{"a":1,"a":2}`, "NaN", "Infinity", "0x1",
	strings.Repeat(`{"a":`, 600) + "1" + strings.Repeat("}", 600), "01", "tru", `"`, "", " ",
	"\ufeff1", "/**/1"}

// randomBody makes a body with a hostile value in one place, with bytes that are changed, or that
// is cut off, repeated or compressed.
func randomBody(m *maker, r hostileRoute, random *rand.Rand) string {
	schema := r.schemaOf()
	if schema == nil {
		return randomOf(random, "", "", "{}", "[]", "null", randomText(random))
	}
	places := m.places("", schema, 0)
	body := m.sample("", schema)
	if len(places) > 0 && random.IntN(4) != 0 {
		p := randomOf(random, places...)
		value := randomOf(random, hostileStrings[:len(hostileStrings)-1]...)
		if !p.isIgnored && random.IntN(2) == 0 {
			value = randomOf(random, slices.Concat(randomValues, brokenStrings)...)
		}
		body = p.body(value)
	}
	if body == "" {
		return body
	}
	changed := []byte(body)
	switch random.IntN(8) {
	case 0:
		for range 1 + random.IntN(4) {
			changed[random.IntN(len(changed))] = byte(random.Uint32())
		}
	case 1:
		changed = changed[:random.IntN(len(changed))]
	case 2:
		changed = append(changed, changed...)
	case 3:
		var packed bytes.Buffer
		z := gzip.NewWriter(&packed)
		_, _ = z.Write(changed)
		_ = z.Close()
		changed = packed.Bytes()
	}
	return string(changed)
}

// memory returns the resident memory of the server in MiB.
func (n *hostileNode) memory(t *testing.T) int { return n.status(t, "VmRSS:") }

// peakMemory returns the most that it had.
func (n *hostileNode) peakMemory(t *testing.T) int { return n.status(t, "VmHWM:") }

// status returns a figure of /proc in MiB.
func (n *hostileNode) status(t *testing.T, name string) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", n.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), name)
	kib, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		t.Fatal(err)
	}
	return kib >> 10
}
