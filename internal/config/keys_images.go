package config

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Images holds the settings of the Images contract.
type Images struct {
	Listen      string // empty: the common listener
	Token       Secret // empty: open, on loopback only (G-X-01)
	LockTimeout time.Duration
	MaxAttempts int
	BackoffBase time.Duration
	BackoffMax  time.Duration
	Sizes       []int // of variants, where an upload asks for none
	MaxUpload   int64 // bytes
	MaxPixels   int   // width × height × frames
	Workers     int   // of this node; 0 is one for each CPU
	QueueURL    string
	CDN         string // one of the CDN... words
	CDNURL      string
	// CloudFrontDistribution is the distribution of the CDN cloudfront.
	CloudFrontDistribution string
}

// The ways to purge a CDN (G-IP-24).
const (
	CDNNone       = "none"
	CDNHTTP       = "http"
	CDNCloudFront = "cloudfront"
)

// imagesKeys are those of Images.
var imagesKeys = []key{
	{"images.listen", "", "Address of a listener for Images alone; the common one when empty.",
		func(s *Settings) value { return addressValue{p: &s.Images.Listen, optional: true} }},
	{"images.token", "", "Token that Images clients send; open on loopback when empty.",
		func(s *Settings) value { return secretValue{&s.Images.Token} }},
	{"images.lock_timeout", "10m",
		"Time without a sign of its worker after which an image job may be taken over.",
		func(s *Settings) value {
			return durationValue{&s.Images.LockTimeout, 100 * time.Millisecond, 24 * time.Hour}
		}},
	{"images.max_attempts", "3", "Attempts after which an image job has failed for good.",
		func(s *Settings) value { return intValue{&s.Images.MaxAttempts, 1, 1000} }},
	{"images.backoff_base", "5s",
		"Wait after the first failed attempt; each further one doubles it.",
		func(s *Settings) value { return durationValue{&s.Images.BackoffBase, 0, 24 * time.Hour} }},
	{"images.backoff_max", "5m", "Longest wait between two attempts.",
		func(s *Settings) value { return durationValue{&s.Images.BackoffMax, 0, 24 * time.Hour} }},
	{"images.sizes", "100,400,800,1600",
		"Sizes in pixels of the variants of an upload that asks for none.",
		func(s *Settings) value { return sizesValue{&s.Images.Sizes} }},
	{"images.max_upload", "32MiB", "Largest image that is taken.",
		func(s *Settings) value { return sizeValue{&s.Images.MaxUpload, 1 << 10, 1 << 30} }},
	{"images.max_pixels", "50000000",
		"Most pixels (width × height × frames) of an image that is decoded.",
		func(s *Settings) value { return intValue{&s.Images.MaxPixels, 1, billion} }},
	{"images.workers", "0", "Image jobs that this node runs at a time; 0 is one for each CPU.",
		func(s *Settings) value { return intValue{&s.Images.Workers, 0, 1000} }},
	{"images.queue_url", "",
		"URL of an SQS queue (awssqs://) for the messages of image jobs; the streams when empty.",
		func(s *Settings) value { return queueURLValue{&s.Images.QueueURL} }},
	{"images.cdn", CDNNone,
		"How a CDN is told of changed images: none, http (PURGE requests to cdn_url) or cloudfront.",
		func(s *Settings) value {
			return choiceValue{&s.Images.CDN, []string{CDNNone, CDNHTTP, CDNCloudFront}}
		}},
	{"images.cdn_url", "",
		"Where the PURGE requests of the CDN http go, each followed by an object's key.",
		func(s *Settings) value { return urlValue{&s.Images.CDNURL} }},
	{"images.cloudfront_distribution", "",
		"Id of the distribution that the CDN cloudfront invalidates.",
		func(s *Settings) value { return wordValue{&s.Images.CloudFrontDistribution} }},
}

// The sizes of variants that may be asked for (G-IP-18).
const (
	maxPixelSize = 8192
	maxSizes     = 20
)

// sizesValue is a list of sizes in pixels.
type sizesValue struct{ p *[]int }

func (v sizesValue) set(in input) error {
	wrong := fmt.Errorf("expected 1 to %d whole numbers from 1 to %d, each once", maxSizes,
		maxPixelSize)
	sizes, ok := in.integers()
	if !ok || len(sizes) < 1 || len(sizes) > maxSizes {
		return wrong
	}
	for i, n := range sizes {
		if n < 1 || n > maxPixelSize || slices.Contains(sizes[:i], n) {
			return wrong
		}
	}
	*v.p = sizes
	return nil
}

func (v sizesValue) show() string {
	words := make([]string, len(*v.p))
	for i, n := range *v.p {
		words[i] = strconv.Itoa(n)
	}
	return strings.Join(words, ",")
}

// integers reads a TOML array of whole numbers, or comma separated text.
func (in input) integers() (all []int, ok bool) {
	if items, array := in.raw.([]any); array {
		for _, item := range items {
			n, isInt := item.(int64)
			if !isInt {
				return nil, false
			}
			all = append(all, int(n))
		}
		return all, true
	}
	words, ok := in.list()
	for _, w := range words {
		n, err := strconv.Atoi(w)
		if err != nil {
			return nil, false
		}
		all = append(all, n)
	}
	return all, ok
}

// queueURLValue is the address of an SQS queue, or empty. Credentials do not belong in it: it is
// shown.
type queueURLValue struct{ p *string }

func (v queueURLValue) set(in input) error {
	s, ok := in.textValue()
	u, err := url.Parse(s)
	if !ok || (s != "" && (err != nil || u.Scheme != "awssqs" || u.Host == "" || u.User != nil ||
		u.Path == "" || u.Fragment != "")) {
		return errors.New("expected a URL such as " +
			"awssqs://sqs.eu-west-1.amazonaws.com/123456789012/images?region=eu-west-1")
	}
	*v.p = s
	return nil
}

func (v queueURLValue) show() string { return *v.p }

// wordValue is letters and digits, or empty.
type wordValue struct{ p *string }

func (v wordValue) set(in input) error {
	s, ok := in.textValue()
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	if !ok || len(s) > 64 || strings.Trim(s, letters) != "" {
		return errors.New("expected letters and digits")
	}
	*v.p = s
	return nil
}

func (v wordValue) show() string { return *v.p }

// checkImages finds a CDN that lacks what it needs.
func (s *Settings) checkImages() []Problem {
	needs, value := "", ""
	switch s.Images.CDN {
	case CDNHTTP:
		needs, value = "images.cdn_url", s.Images.CDNURL
	case CDNCloudFront:
		needs, value = "images.cloudfront_distribution", s.Images.CloudFrontDistribution
	}
	if needs == "" || value != "" {
		return nil
	}
	return []Problem{{Key: needs, Origin: s.origin(needs),
		Text: fmt.Sprintf("%q is missing: images.cdn is %s (%s), which needs it", needs,
			s.Images.CDN, s.origin("images.cdn"))}}
}
