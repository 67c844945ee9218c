package egress

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"net/url"
)

// This is the half of SOCKS5 (RFC 1928) that a client needs: one method of authentication is
// offered, none or a password, then one connection is requested to an address:
//
//	version, methods ─▶ chosen method ─▶ [user, password ─▶ ok] ─▶ connect to an address ─▶ reply
//
// The proxy gets an address and never a name: names are resolved and checked before, so that what
// the rules of this server refuse is not reached by another way. Errors about the target differ
// from errors of the proxy, as the first are the fault of whoever has given the URL.

// maxSOCKSCredential bounds user name and password (RFC 1929).
const maxSOCKSCredential = 255

// The codes of SOCKS5 (RFC 1928).
const (
	socksVersion  = 5
	socksNoAuth   = 0
	socksPassword = 2
	socksConnect  = 1
	socksIPv4     = 1
	socksDomain   = 3
	socksIPv6     = 4
)

// targetReplies are the replies about the target and not the proxy.
var targetReplies = map[byte]string{
	2: "its rules forbid the address",
	3: "network unreachable",
	4: "host unreachable",
	5: "connection refused",
	6: "TTL expired",
	8: "it does not support this type of address",
}

// socksHandshake requests a connection to an address from a SOCKS5 proxy.
func socksHandshake(conn net.Conn, user *url.Userinfo, target netip.AddrPort) error {
	if err := socksAuthenticate(conn, user); err != nil {
		return err
	}
	request := []byte{socksVersion, socksConnect, 0, socksIPv4}
	if target.Addr().Is6() {
		request[3] = socksIPv6
	}
	request = append(request, target.Addr().AsSlice()...)
	request = append(request, byte(target.Port()>>8), byte(target.Port()))
	if _, err := conn.Write(request); err != nil {
		return err
	}
	var head [5]byte // version, reply, 0, type of the address, its first byte
	if _, err := io.ReadFull(conn, head[:]); err != nil {
		return err
	}
	if head[0] != socksVersion {
		return errors.New("it does not speak SOCKS5")
	}
	if reason, ok := targetReplies[head[1]]; ok {
		return &targetError{reason}
	}
	if head[1] != 0 {
		return fmt.Errorf("it answers %d", head[1])
	}
	remaining, ok := map[byte]int{socksIPv4: 3, socksIPv6: 15, socksDomain: int(head[4])}[head[3]]
	if !ok {
		return errors.New("it does not speak SOCKS5")
	}
	_, err := io.ReadFull(conn, make([]byte, remaining+2)) // with the port
	return err
}

// socksAuthenticate negotiates the method of authentication, and authenticates.
func socksAuthenticate(conn net.Conn, user *url.Userinfo) error {
	method := byte(socksNoAuth)
	if user != nil {
		method = socksPassword
	}
	chosen, err := socksExchange(conn, []byte{socksVersion, 1, method})
	if err != nil {
		return err
	}
	if chosen[0] != socksVersion || chosen[1] != method {
		return errors.New("it does not accept this method of authentication")
	}
	if user == nil {
		return nil
	}
	password, _ := user.Password()
	login := append([]byte{1, byte(len(user.Username()))}, user.Username()...)
	login = append(append(login, byte(len(password))), password...)
	answer, err := socksExchange(conn, login)
	if err != nil {
		return err
	}
	if answer[1] != 0 {
		return errProxyCredentials
	}
	return nil
}

// socksExchange sends a request whose answer has two bytes.
func socksExchange(conn net.Conn, request []byte) (answer [2]byte, err error) {
	if _, err := conn.Write(request); err != nil {
		return answer, err
	}
	_, err = io.ReadFull(conn, answer[:])
	return answer, err
}
