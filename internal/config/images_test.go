package config

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestImages(t *testing.T) {
	t.Parallel()
	s := mustLoad(t, Sources{})
	i := &s.Images
	if i.LockTimeout != 10*time.Minute || i.MaxAttempts != 3 || i.BackoffBase != 5*time.Second ||
		i.BackoffMax != 5*time.Minute ||
		!slices.Equal(i.Sizes, []int{100, 400, 800, 1600}) || i.MaxUpload != 32<<20 ||
		i.MaxPixels != 50_000_000 || i.CDNType != "none" {
		t.Errorf("got %+v", i)
	}
	t.Run("what is taken", func(t *testing.T) {
		s := mustLoad(t, Sources{Flags: map[string]string{"images.sizes": "8192, 1",
			"images.cdn": "http", "images.cdn_url": "http://cdn.example:80/x",
			"images.queue_url": "awssqs://sqs.eu-west-1.amazonaws.com/123456789012/images?region=eu-west-1"}})
		if !slices.Equal(s.Images.Sizes, []int{8192, 1}) || s.Images.QueueURL == "" {
			t.Errorf("got %+v", s.Images)
		}
	})
	for key, values := range map[string][]string{
		"images.sizes": {"", "0", "8193", "1,1", "x", "1,",
			strings.Repeat("1,", 20) + "2"},
		"images.queue_url": {"http://x/y", "awssqs://", "awssqs://host",
			"awssqs://u:p@host/q", "awssqs:///q", "awssqs://h/q#f"},
		"images.cdn":                     {"other"},
		"images.cdn_url":                 {"ftp://x"},
		"images.cloudfront_distribution": {"a/b", strings.Repeat("a", 65)},
		"images.max_attempts":            {"0"},
		"images.lock_timeout":            {"0s"},
	} {
		for _, v := range values {
			if _, err := load(Sources{Flags: map[string]string{key: v}}); err == nil ||
				!strings.Contains(err.Error(), key) {
				t.Errorf("%s = %q: %v", key, v, err)
			}
		}
	}
	t.Run("a CDN needs its URL", func(t *testing.T) {
		for cdn, needs := range map[string]string{"http": "images.cdn_url",
			"cloudfront": "images.cloudfront_distribution"} {
			_, err := load(Sources{Flags: map[string]string{"images.cdn": cdn}})
			if err == nil || !strings.Contains(err.Error(), `"`+needs+`" is missing`) {
				t.Errorf("%s: %v", cdn, err)
			}
		}
	})
	t.Run("beyond loopback it needs a token", func(t *testing.T) {
		_, err := load(Sources{Flags: map[string]string{"contracts": "images",
			"listen": "10.1.2.3:80", "trusted_network": "true",
			"operator.token": strings.Repeat("o", 32)}})
		if err == nil || !strings.Contains(err.Error(), "images.token") {
			t.Errorf("got %v", err)
		}
	})
}
