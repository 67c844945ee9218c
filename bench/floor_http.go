package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// floorHTTP is net/http answering nothing: what a server over HTTP cannot beat. Server and client
// share the machine, as they do in Millrace's own cases.
type floorHTTP struct {
	server  *http.Server
	addr    string
	clients int
	client  *http.Client // nil: requests are written by hand
}

func setupFloorHTTP(_ context.Context, env *Env) (Runner, error) {
	return newFloorHTTP(env.Clients)
}

func setupFloorHTTPClient(_ context.Context, env *Env) (Runner, error) {
	f, err := newFloorHTTP(env.Clients)
	if err != nil {
		return nil, err
	}
	f.client = &http.Client{Transport: &http.Transport{
		MaxIdleConns: env.Clients, MaxIdleConnsPerHost: env.Clients, DisableCompression: true,
	}}
	return f, nil
}

func newFloorHTTP(clients int) (*floorHTTP, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	answer := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNoContent)
	})
	f := &floorHTTP{server: &http.Server{Handler: answer}, addr: listener.Addr().String(),
		clients: clients}
	go func() { _ = f.server.Serve(listener) }() // ends with Close
	return f, nil
}

func (f *floorHTTP) Durability() string { return "none: nothing is stored" }

func (f *floorHTTP) Run(ctx context.Context, n int) ([]Phase, error) {
	if f.client == nil {
		request := fmt.Appendf(nil, "GET / HTTP/1.1\r\nHost: %s\r\n\r\n", f.addr)
		phase, err := sendMany(ctx, f.addr, f.clients, n, http.StatusNoContent, func(int) []byte {
			return request
		})
		return []Phase{phase}, err
	}
	started := time.Now()
	latency, err := runParallel(ctx, f.clients, n, func(ctx context.Context, _, _ int) error {
		return f.get(ctx)
	})
	return []Phase{{Name: phaseRequest, Jobs: n, Took: time.Since(started), Latency: latency}}, err
}

func (f *floorHTTP) get(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+f.addr+"/", nil)
	if err != nil {
		return err
	}
	res, err := f.client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusNoContent {
		return fmt.Errorf("status %d", res.StatusCode)
	}
	_, err = io.Copy(io.Discard, res.Body)
	return err
}

func (f *floorHTTP) Close() error {
	if f.client != nil {
		f.client.CloseIdleConnections()
	}
	return f.server.Close()
}
