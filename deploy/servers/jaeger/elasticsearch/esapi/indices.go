package esapi

import (
	"errors"
	"io"
)

// Indices is the API of indices.
type Indices struct{}

// Response is an answer of the API.
type Response struct {
	StatusCode int
}

// PutIndexTemplate always fails.
func (*Indices) PutIndexTemplate(string, io.Reader) (*Response, error) {
	return nil, errors.ErrUnsupported
}
