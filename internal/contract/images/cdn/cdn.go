// Package cdn removes copies of changed objects from a content delivery network, by PURGE requests
// or by invalidations of CloudFront. Its errors are *job.Error, of the kind Unavailable if a retry
// may succeed and Invalid if the network refuses the request.
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

// Names of the operations, as labels of metrics.
const (
	OpPurge      = "purge"
	OpInvalidate = "create_invalidation"
)

// Operations are all operations.
var Operations = []string{OpInvalidate, OpPurge}

// CDN is a content delivery network.
type CDN interface {
	// Purge removes the copies of objects, by their keys. Repeated calls with one reference have
	// the effect of one.
	Purge(ctx context.Context, reference string, keys []string) error

	// Operation is the name of the operation that Purge uses.
	Operation() string
}

// Doer makes HTTP requests, guarded by package egress.
type Doer interface {
	Do(*http.Request) (*http.Response, error)
}

// HTTP sends PURGE requests (G-IP-24).
type HTTP struct {
	URL    string // the prefix of the keys
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

// maxBodyBytes bounds how much of an answer is read, in bytes.
const maxBodyBytes = 64 << 10

func (h *HTTP) purge(ctx context.Context, objectURL string) error {
	req, err := http.NewRequestWithContext(ctx, "PURGE", objectURL, nil)
	if err != nil {
		return &job.Error{Kind: job.Invalid, Op: "cdn.purge", Err: err}
	}
	resp, err := h.Client.Do(req)
	if err != nil {
		return &job.Error{Kind: job.Unavailable, Op: "cdn.purge", Err: err}
	}
	defer resp.Body.Close()
	// A body that is read to its end lets the connection be reused.
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, maxBodyBytes))
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

// CloudFront makes invalidations. It keeps the one call it makes, and not the client: with the
// client in a field the linker keeps all calls of CloudFront, 6 MB of the binary.
type CloudFront struct {
	invalidate func(context.Context, *cloudfront.CreateInvalidationInput,
		...func(*cloudfront.Options)) (*cloudfront.CreateInvalidationOutput, error)
	distribution string
}

// NewCloudFront makes a client of a distribution. Its credentials come from the default chain of
// the AWS SDK.
func NewCloudFront(ctx context.Context, distribution string, client Doer) (*CloudFront, error) {
	c, err := awsconfig.LoadDefaultConfig(ctx)
	if err != nil {
		return nil, &job.Error{Kind: job.Invalid, Op: "cdn.open",
			Msg: "the AWS configuration cannot be loaded", Err: err}
	}
	if c.Region == "" {
		c.Region = "us-east-1" // CloudFront is a global service
	}
	service := cloudfront.NewFromConfig(c, func(o *cloudfront.Options) { o.HTTPClient = client })
	return &CloudFront{distribution: distribution, invalidate: service.CreateInvalidation}, nil
}

// Operation implements CDN.
func (c *CloudFront) Operation() string { return OpInvalidate }

// Purge implements CDN.
func (c *CloudFront) Purge(ctx context.Context, reference string, keys []string) error {
	paths := make([]string, len(keys))
	for i, key := range keys {
		paths[i] = "/" + (&url.URL{Path: key}).EscapedPath()
	}
	_, err := c.invalidate(ctx,
		&cloudfront.CreateInvalidationInput{DistributionId: aws.String(c.distribution),
			InvalidationBatch: &types.InvalidationBatch{CallerReference: aws.String(reference),
				Paths: &types.Paths{Quantity: aws.Int32(int32(len(paths))), Items: paths}}})
	if err != nil {
		return &job.Error{Kind: job.Unavailable, Op: "cdn.invalidate",
			Msg: "CloudFront did not create the invalidation", Err: err}
	}
	return nil
}
