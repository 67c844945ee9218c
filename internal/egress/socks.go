package egress

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"net/url"
)

// mostSOCKS is how long user name and password may be (RFC 1929).
const mostSOCKS = 255

// What is said in SOCKS5 (RFC 1928).
const (
	socksVersion  = 5
	socksOpen     = 0
	socksPassword = 2
	socksConnect  = 1
	socksIPv4     = 1
	socksName     = 3
	socksIPv6     = 4
)

// ofTarget are the answers that are about the address and not the proxy.
var ofTarget = map[byte]string{2: "its rules forbid the address", 3: "the network cannot be reached", 4: "the host cannot be reached",
	5: "the connection is refused", 6: "the way is too long", 8: "it does not know the kind of address"}

// socks asks a SOCKS5 proxy for a connection to an address.
func socks(conn net.Conn, user *url.Userinfo, to netip.AddrPort) error {
	if err := socksGreet(conn, user); err != nil {
		return err
	}
	ask := []byte{socksVersion, socksConnect, 0, socksIPv4}
	if to.Addr().Is6() {
		ask[3] = socksIPv6
	}
	ask = append(ask, to.Addr().AsSlice()...)
	ask = append(ask, byte(to.Port()>>8), byte(to.Port()))
	if _, err := conn.Write(ask); err != nil {
		return err
	}
	var head [5]byte // version, reply, 0, kind of address, its first byte
	if _, err := io.ReadFull(conn, head[:]); err != nil {
		return err
	}
	if head[0] != socksVersion {
		return errors.New("it does not speak SOCKS5")
	}
	if why, ok := ofTarget[head[1]]; ok {
		return &unreached{why}
	}
	if head[1] != 0 {
		return fmt.Errorf("it answers %d", head[1])
	}
	rest, ok := map[byte]int{socksIPv4: 3, socksIPv6: 15, socksName: int(head[4])}[head[3]]
	if !ok {
		return errors.New("it does not speak SOCKS5")
	}
	_, err := io.ReadFull(conn, make([]byte, rest+2)) // with the port
	return err
}

// socksGreet agrees on how to log in, and does.
func socksGreet(conn net.Conn, user *url.Userinfo) error {
	method := byte(socksOpen)
	if user != nil {
		method = socksPassword
	}
	chosen, err := socksAsk(conn, []byte{socksVersion, 1, method})
	if err != nil {
		return err
	}
	if chosen[0] != socksVersion || chosen[1] != method {
		return errors.New("it does not take this way to log in")
	}
	if user == nil {
		return nil
	}
	password, _ := user.Password()
	login := append([]byte{1, byte(len(user.Username()))}, user.Username()...)
	login = append(append(login, byte(len(password))), password...)
	answer, err := socksAsk(conn, login)
	if err == nil && answer[1] != 0 {
		err = errors.New("it refuses the credentials")
	}
	return err
}

// socksAsk says something that is answered with two bytes.
func socksAsk(conn net.Conn, say []byte) (answer [2]byte, err error) {
	if _, err = conn.Write(say); err == nil {
		_, err = io.ReadFull(conn, answer[:])
	}
	return answer, err
}
