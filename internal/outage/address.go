package outage

import (
	"net"
	"net/url"
	"strings"
)

// hostOf returns the host and port of a URL. Of a text that is not a URL it returns what follows
// the user, if there is one, or all of it.
func hostOf(text string) string {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" {
		_, host, found := strings.Cut(text, "@")
		if !found {
			return text
		}
		return host
	}
	return u.Host
}

// HostsOf returns the hosts and ports of one URL, or of several separated by commas. A host without
// a port gets the default, if that is not empty.
func HostsOf(urls, defaultPort string) string {
	var hosts []string
	for one := range strings.SplitSeq(urls, ",") {
		host := hostOf(one)
		host, _, _ = strings.Cut(host, "/")
		if _, _, err := net.SplitHostPort(host); err != nil && defaultPort != "" {
			host = net.JoinHostPort(host, defaultPort)
		}
		hosts = append(hosts, host)
	}
	return strings.Join(hosts, ",")
}

// EndpointOf returns the host of an AWS service, or of a compatible one, from its URL.
func EndpointOf(at string) string {
	u, err := url.Parse(at)
	if err != nil {
		return ""
	}
	if endpoint := u.Query().Get("endpoint"); endpoint != "" {
		return HostsOf(endpoint, "")
	}
	if u.Host != "" {
		return u.Host
	}
	return "S3 in " + u.Query().Get("region")
}
