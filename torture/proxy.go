package main

import (
	"net"
	"sync"
)

// proxy is a TCP proxy between a node and its database, which resets connections or swallows what
// is sent over them.
type proxy struct {
	listener net.Listener
	target   string

	mu      sync.Mutex
	resumed *sync.Cond
	stalled bool
	open    map[*net.TCPConn]bool
}

// newProxy listens on an address of its own and carries what comes to the target.
func newProxy(target string) (*proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{listener: l, target: target, open: map[*net.TCPConn]bool{}}
	p.resumed = sync.NewCond(&p.mu)
	go p.serve()
	return p, nil
}

// address is what a node connects to in place of the database.
func (p *proxy) address() string { return p.listener.Addr().String() }

// serve accepts connections until the listener is closed.
func (p *proxy) serve() {
	for {
		conn, err := p.listener.Accept()
		if err != nil {
			return
		}
		go p.connect(conn.(*net.TCPConn))
	}
}

// connect carries one connection of the node.
func (p *proxy) connect(from *net.TCPConn) {
	conn, err := net.Dial("tcp", p.target)
	if err != nil {
		from.Close()
		return
	}
	to := conn.(*net.TCPConn)
	p.mu.Lock()
	p.open[from], p.open[to] = true, true
	p.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { p.carry(to, from) })
	both.Go(func() { p.carry(from, to) })
	both.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, from)
	delete(p.open, to)
}

// carry copies one direction until either end is closed.
func (p *proxy) carry(to, from *net.TCPConn) {
	defer to.Close()
	defer from.Close()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		p.mu.Lock()
		for p.stalled {
			p.resumed.Wait()
		}
		p.mu.Unlock()
		if n > 0 {
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil { // io.EOF is an end as well
			return
		}
	}
}

// Close ends the proxy and its connections.
func (p *proxy) Close() error {
	p.stall(false)
	p.reset()
	return p.listener.Close()
}

// reset ends all connections at once, without a word to either end.
func (p *proxy) reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for conn := range p.open {
		_ = conn.SetLinger(0)
		conn.Close()
	}
}

// stall holds back the bytes that are sent over all connections, or lets them go on.
func (p *proxy) stall(stalled bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stalled = stalled
	p.resumed.Broadcast()
}
