package testkit

// HostileURLs are URLs that no request may go to, where only public addresses may be called: each
// with a word of why. They are refused as soon as they are named.
var HostileURLs = map[string]string{
	"ftp://example.com/":                       "http",
	"file:///etc/passwd":                       "http",
	"javascript:alert(1)":                      "http",
	"//example.com/":                           "http",
	"example.com":                              "http",
	"http://":                                  "host",
	"http:///path":                             "host",
	"http://user:secret@example.com/":          "credentials",
	"http://example.com:0/":                    "port",
	"http://example.com:99999/":                "port",
	"http://[fe80::1%25eth0]/":                 "zone",
	"http://example.com/a b":                   "spaces",
	"http://example.com/\nhost: other":         "control",
	"http://127.0.0.1:8080/admin/v1/jobs":      "loopback",
	"http://[::1]/":                            "loopback",
	"http://[::ffff:127.0.0.1]/":               "loopback",
	"http://10.0.0.1/":                         "private",
	"http://192.168.1.1/":                      "private",
	"http://169.254.169.254/latest/meta-data/": "link-local",
	"http://0.0.0.0/":                          "unspecified",
	"http://224.0.0.1/":                        "multicast",
	"http://[64:ff9b::a00:1]/":                 "IPv4 in IPv6",
}
