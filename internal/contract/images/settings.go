package images

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/setting"
)

// Settings are the settings of Images.
type Settings struct {
	Listen         string         // empty: the common listener
	Token          setting.Secret // empty: open, on loopback only (G-X-01)
	CallbackSecret setting.Secret // signs callbacks; empty: derived from the pepper
	LockTimeout    time.Duration  // the lease of a job (IP-048)
	MaxAttempts    int
	BackoffBase    time.Duration
	BackoffMax     time.Duration
	Sizes          []int // of an upload that names none
	MaxUpload      int64 // bytes
	MaxPixels      int   // width × height × frames
	Workers        int   // of this node; 0 is one for each CPU
	QueueURL       string
	CDNType        string // one of the CDN... words
	CDNURL         string
	// CloudFrontDistribution is the distribution of the CDN cloudfront.
	CloudFrontDistribution string
}

// How a CDN is purged (G-IP-24).
const (
	CDNNone       = "none"
	CDNHTTP       = "http"
	CDNCloudFront = "cloudfront"
)

// Group declares the settings.
func (s *Settings) Group() *setting.Group {
	return &setting.Group{Name: Name, Listen: &s.Listen, Token: &s.Token,
		CallbackSecret: &s.CallbackSecret,
		Workers:        setting.OptionalWorkers, Keys: s.keys(), Check: s.checkCDN,
		UsesStreams: func() bool { return s.QueueURL == "" }}
}

// keys declares each setting with its default, its meaning and its bounds.
func (s *Settings) keys() []setting.Key {
	return []setting.Key{
		setting.ListenKey(Name, "Images", &s.Listen),
		setting.TokenKey(Name, "Images", &s.Token),
		setting.CallbackSecretKey(Name, "Images", &s.CallbackSecret),
		setting.Define("images.lock_timeout", "10m",
			"Time without a heartbeat after which the lock of an image job expires.",
			setting.Duration(&s.LockTimeout, 100*time.Millisecond, 24*time.Hour)),
		setting.Define("images.max_attempts", "3",
			"Attempts after which an image job has failed for good.",
			setting.Int(&s.MaxAttempts, 1, 1000)),
		setting.Define("images.backoff_base", "5s",
			"Delay after the first failed attempt; each further one doubles it.",
			setting.Duration(&s.BackoffBase, 0, 24*time.Hour)),
		setting.Define("images.backoff_max", "5m", "Largest delay between two attempts.",
			setting.Duration(&s.BackoffMax, 0, 24*time.Hour)),
		setting.Define("images.sizes", "100,400,800,1600",
			"Sizes in pixels of the variants of an upload that names none.",
			sizes(&s.Sizes)),
		setting.Define("images.max_upload", "32MiB", "Largest upload.",
			setting.Size(&s.MaxUpload, 1<<10, 1<<30)),
		setting.Define("images.max_pixels", "50000000",
			"Maximum number of pixels (width × height × frames) of an image that is decoded.",
			setting.Int(&s.MaxPixels, 1, setting.Billion)),
		setting.Define("images.workers", "0",
			"Image jobs that this node runs at a time; 0 is one for each CPU.",
			setting.Int(&s.Workers, 0, 1000)),
		setting.Define("images.queue_url", "",
			"URL of an SQS queue (awssqs://) for the messages of image jobs; the streams when empty.",
			queueURL(&s.QueueURL)),
		setting.Define("images.cdn", CDNNone,
			"CDN to purge when images change: none, http (PURGE requests to cdn_url) or cloudfront.",
			setting.Choice(&s.CDNType, CDNNone, CDNHTTP, CDNCloudFront)),
		setting.Define("images.cdn_url", "",
			"URL that the key of an object is appended to for the PURGE requests of the CDN http.",
			setting.URL(&s.CDNURL)),
		setting.Define("images.cloudfront_distribution", "",
			"Id of the distribution that the CDN cloudfront invalidates.",
			setting.Text(&s.CloudFrontDistribution, "letters and digits", isWord)),
	}
}

// sizes is a list of sizes of variants in pixels.
func sizes(p *[]int) setting.Value {
	return setting.Value{
		Set: func(in setting.Input) error {
			sizes, ok := integers(in)
			if !ok || !validSizes(sizes) || hasDuplicates(sizes) {
				return fmt.Errorf("expected 1 to %d whole numbers from 1 to %d, each once",
					maxVariantSizes, maxVariantSize)
			}
			*p = sizes
			return nil
		},
		Show: func() string {
			words := make([]string, len(*p))
			for i, n := range *p {
				words[i] = strconv.Itoa(n)
			}
			return strings.Join(words, ",")
		},
	}
}

func hasDuplicates(sizes []int) bool {
	sorted := slices.Sorted(slices.Values(sizes))
	return len(slices.Compact(sorted)) < len(sizes)
}

// integers reads a TOML array of whole numbers, or comma-separated text.
func integers(in setting.Input) (all []int, ok bool) {
	if items, array := in.Raw.([]any); array {
		for _, item := range items {
			n, isInt := item.(int64)
			if !isInt {
				return nil, false
			}
			all = append(all, int(n))
		}
		return all, true
	}
	words, ok := in.List()
	for _, w := range words {
		n, err := strconv.Atoi(w)
		if err != nil {
			return nil, false
		}
		all = append(all, n)
	}
	return all, ok
}

// queueURL is the address of an SQS queue, or empty. Credentials do not belong in it: it is shown.
func queueURL(p *string) setting.Value {
	return setting.Text(p, "a URL such as "+
		"awssqs://sqs.eu-west-1.amazonaws.com/123456789012/images?region=eu-west-1",
		func(s string) bool {
			u, err := url.Parse(s)
			if err != nil {
				return false
			}
			return s == "" || (u.Scheme == "awssqs" && u.Host != "" && u.User == nil &&
				u.Path != "" && u.Fragment == "")
		})
}

// isWord reports whether a text is letters and digits, or empty.
func isWord(s string) bool {
	return len(s) <= 64 && strings.Trim(s, setting.NameCharacters) == "" && !strings.Contains(s, "_")
}

// checkCDN finds a CDN that lacks what it needs.
func (s *Settings) checkCDN(c *setting.Checker) {
	needs, value := "", ""
	switch s.CDNType {
	case CDNHTTP:
		needs, value = "images.cdn_url", s.CDNURL
	case CDNCloudFront:
		needs, value = "images.cloudfront_distribution", s.CloudFrontDistribution
	}
	isSet := needs == "" || value != ""
	if isSet || !c.Valid("images.cdn", "images.cdn_url", "images.cloudfront_distribution") {
		return
	}
	c.Report(needs, fmt.Sprintf("%q is missing: images.cdn is %s (%s), which needs it", needs,
		s.CDNType, c.Origin("images.cdn")))
}
