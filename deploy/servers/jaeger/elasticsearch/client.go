// Package elasticsearch stands in for the Elasticsearch client when Jaeger is
// built here. The real one is 847 packages, a third of the time that Jaeger
// takes to compile, and only a Jaeger that stores its traces in Elasticsearch 8
// or later calls it; the one that tests and the demo start keeps them in
// memory. It imports the standard library only.
package elasticsearch

import (
	"errors"
	"net/http"

	"github.com/elastic/go-elasticsearch/v9/esapi"
)

// Config has the settings that Jaeger sets. They are not read.
type Config struct {
	Addresses            []string
	Username             string
	Password             string
	DiscoverNodesOnStart bool
	CompressRequestBody  bool
	Header               http.Header
	Transport            http.RoundTripper
}

// Client has the part that Jaeger uses. There is never one.
type Client struct {
	Indices *esapi.Indices
}

// NewClient always fails, so that a configuration that asks for Elasticsearch
// ends Jaeger with the reason.
func NewClient(Config) (*Client, error) {
	return nil, errors.New("this Jaeger was built without its Elasticsearch client: store traces in memory")
}
