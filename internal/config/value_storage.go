package config

import (
	"net/url"
	"slices"
	"strings"

	"github.com/millrace/millrace/internal/setting"
)

// objectsURL is the address of an S3 store. Its keys do not belong in it: it is shown. A wrong one
// may contain an access key, so no problem repeats it.
func objectsURL(p *string) setting.Value {
	v := setting.Text(p, "s3://?region=REGION&endpoint=URL, or what else there is to say out of "+
		strings.Join(s3Members, ", ")+
		"; the bucket stands in objects.bucket, and keys where AWS clients look for them, such as AWS_ACCESS_KEY_ID",
		func(s string) bool { return s == "" || validObjects(s) })
	v.Secret = true
	return v
}

// s3Members are what the address of an S3 store may say.
var s3Members = []string{"region", "endpoint", "profile", "role", "anonymous", "use_path_style",
	"disable_https", "hostname_immutable",
	"accelerate", "dualstack", "fips", "ssetype", "kmskeyid", "request_checksum_calculation",
	"response_checksum_validation"}

// validObjects reports whether a text is the URL of an S3 storage with known parameters, each given
// once, and without credentials.
func validObjects(s string) bool {
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "s3" || u.Host != "" || u.User != nil || u.Path != "" ||
		u.Fragment != "" || !strings.HasPrefix(s, "s3://") {
		return false
	}
	members, err := url.ParseQuery(u.RawQuery)
	for member, values := range members {
		if !slices.Contains(s3Members, member) || len(values) != 1 || values[0] == "" ||
			(member == "endpoint" && !setting.ValidServiceURL(values[0])) {
			return false
		}
	}
	return err == nil
}

// streamURLs is the addresses of a NATS cluster. The token does not belong in them: they are shown.
func streamURLs(p *string) setting.Value {
	return setting.Text(p, "nats://HOST:PORT or tls://HOST:PORT, several divided by commas; the "+
		"token stands in stream.token",
		func(s string) bool { return s == "" || validStreams(s) })
}

// validStreams reports whether a text is one NATS address or several, each with a host and without
// credentials.
func validStreams(s string) bool {
	for address := range strings.SplitSeq(s, ",") {
		scheme, host, _ := strings.Cut(strings.TrimSpace(address), "://")
		if (scheme != "nats" && scheme != "tls") || !setting.ValidAddress(host) || host[0] == ':' {
			return false
		}
	}
	return true
}
