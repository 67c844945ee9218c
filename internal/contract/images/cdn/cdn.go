// Package cdn tells a content delivery network that objects have changed: by PURGE requests, or by
// invalidations of CloudFront. Errors are *job.Error: Unavailable for what may pass, Invalid for
// what the network refuses.
package cdn

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/cloudfront"
	"github.com/aws/aws-sdk-go-v2/service/cloudfront/types"

	"github.com/millrace/millrace/internal/job"
)

// What is done to a network, as metrics call it.
const (
	OpPurge      = "purge"
	OpInvalidate = "create_invalidation"
)

// Operations are all of them.
var Operations = []string{OpInvalidate, OpPurge}

// CDN is a network that keeps copies of objects.
type CDN interface {
	// Purge makes it forget the objects of keys. To do so again under the same reference changes
	// nothing.
	Purge(ctx context.Context, reference string, keys []string) error
	// Operation is what that is.
	Operation() string
}

// Doer makes requests: the only way out of the process.
type Doer interface {
	Do(*http.Request) (*http.Response, error)
}

// HTTP sends PURGE requests (G-IP-24).
type HTTP struct {
	URL    string // what the keys are below
	Client Doer
}

// Operation implements CDN.
func (h *HTTP) Operation() string { return OpPurge }

// Purge implements CDN: one request for each key.
func (h *HTTP) Purge(ctx context.Context, _ string, keys []string) error {
	for _, key := range keys {
		if err := h.purge(ctx, strings.TrimSuffix(h.URL, "/")+"/"+
			(&url.URL{Path: key}).EscapedPath()); err != nil {
			return err
		}
	}
	return nil
}

// bodyLimit is how much of an answer is read.
const bodyLimit = 64 << 10

func (h *HTTP) purge(ctx context.Context, at string) error {
	req, err := http.NewRequestWithContext(ctx, "PURGE", at, nil)
	if err != nil {
		return &job.Error{Kind: job.Invalid, Op: "cdn.purge", Err: err}
	}
	resp, err := h.Client.Do(req)
	if err != nil {
		return &job.Error{Kind: job.Unavailable, Op: "cdn.purge", Err: err}
	}
	defer resp.Body.Close()
	// so that the connection serves again
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, bodyLimit))
	if resp.StatusCode/100 == 2 || resp.StatusCode == http.StatusNotFound {
		return nil // not found: there was no copy
	}
	return &job.Error{Kind: kindOf(resp.StatusCode), Op: "cdn.purge",
		Msg: fmt.Sprintf("the CDN answers a PURGE with %d", resp.StatusCode)}
}

func kindOf(status int) job.Kind {
	if status >= http.StatusInternalServerError || status == http.StatusTooManyRequests ||
		status == http.StatusRequestTimeout {
		return job.Unavailable
	}
	return job.Invalid
}

// CloudFront makes invalidations.
type CloudFront struct {
	client       *cloudfront.Client
	distribution string
}

// NewCloudFront makes a client of a distribution; credentials come from where AWS clients look for
// them.
func NewCloudFront(ctx context.Context, distribution string, client Doer) (*CloudFront, error) {
	c, err := awsconfig.LoadDefaultConfig(ctx)
	if err != nil {
		return nil, &job.Error{Kind: job.Invalid, Op: "cdn.open",
			Msg: "the settings of AWS cannot be read", Err: err}
	}
	if c.Region == "" {
		c.Region = "us-east-1" // CloudFront is the same everywhere
	}
	return &CloudFront{distribution: distribution,
		client: cloudfront.NewFromConfig(c, func(o *cloudfront.Options) {
			o.HTTPClient = client
		})}, nil
}

// Operation implements CDN.
func (c *CloudFront) Operation() string { return OpInvalidate }

// Purge implements CDN.
func (c *CloudFront) Purge(ctx context.Context, reference string, keys []string) error {
	paths := make([]string, len(keys))
	for i, key := range keys {
		paths[i] = "/" + (&url.URL{Path: key}).EscapedPath()
	}
	_, err := c.client.CreateInvalidation(ctx,
		&cloudfront.CreateInvalidationInput{DistributionId: aws.String(c.distribution),
			InvalidationBatch: &types.InvalidationBatch{CallerReference: aws.String(reference),
				Paths: &types.Paths{Quantity: aws.Int32(int32(len(paths))), Items: paths}}})
	if err != nil {
		return &job.Error{Kind: job.Unavailable, Op: "cdn.invalidate",
			Msg: "CloudFront made no invalidation", Err: err}
	}
	return nil
}
