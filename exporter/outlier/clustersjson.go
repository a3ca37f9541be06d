package outlier

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
)

// maxElement bounds one endpoint of one cluster, or one scalar, in an
// endpoint list. Envoy writes about 2 kB per endpoint.
const maxElement = 1 << 20

// hostStatus is the part of envoy.admin.v3.HostStatus that matters
// (https://www.envoyproxy.io/docs/envoy/latest/api-v3/admin/v3/clusters.proto).
// proto3's JSON leaves out what has its default: an endpoint that is not
// ejected has no failed_outlier_check. 64-bit integers are written as strings,
// which json.Number takes as well as numbers.
type hostStatus struct {
	Address struct {
		SocketAddress struct {
			Address string `json:"address"`
		} `json:"socket_address"`
		Pipe struct {
			Path string `json:"path"`
		} `json:"pipe"`
		InternalAddress struct {
			ServerListenerName string `json:"server_listener_name"`
			EndpointID         string `json:"endpoint_id"`
		} `json:"envoy_internal_address"`
	} `json:"address"`
	Stats []struct {
		Name  string      `json:"name"`
		Value json.Number `json:"value"`
	} `json:"stats"`
	HealthStatus struct {
		FailedOutlierCheck bool `json:"failed_outlier_check"`
	} `json:"health_status"`
}

// reading keeps what matters of an endpoint.
func (h *hostStatus) reading() EndpointReading {
	e := EndpointReading{Ejected: h.HealthStatus.FailedOutlierCheck, Connections: -1}
	switch a := &h.Address; {
	case a.SocketAddress.Address != "":
		e.Address = canonicalAddress(a.SocketAddress.Address)
	case a.InternalAddress.EndpointID != "":
		// Ambient mesh: the endpoint behind the tunnel, as ip:port.
		e.Address = a.InternalAddress.EndpointID
		if host, _, err := net.SplitHostPort(e.Address); err == nil {
			e.Address = host
		}
		e.Address = canonicalAddress(e.Address)
	case a.InternalAddress.ServerListenerName != "":
		e.Address = a.InternalAddress.ServerListenerName
	default:
		e.Address = a.Pipe.Path
	}
	for _, s := range h.Stats {
		if s.Name == "cx_total" {
			if v, err := s.Value.Float64(); err == nil && v >= 0 {
				e.Connections = v
			}
		}
	}
	return e
}

// parseClusters reads the answer of Envoy's /clusters?format=json
// (envoy.admin.v3.Clusters) endpoint by endpoint, so that its size does not
// matter, and keeps the clusters that want picks. The error is a ReadError
// with ReasonMalformed, ReasonTooLarge, or ReasonNoStats for a document
// without cluster_statuses; errors of r are passed on.
func parseClusters(r io.Reader, want func(cluster string) bool) ([]ClusterReading, error) {
	p := clustersParser{bounded: &elementReader{r: r, limit: maxElement}, want: want}
	p.dec = json.NewDecoder(p.bounded)
	found := false
	err := p.object(func(key string) error {
		if key != "cluster_statuses" {
			return p.skip()
		}
		found = true
		return p.array(p.cluster)
	})
	if err == nil {
		err = p.end()
	}
	if err != nil {
		return nil, p.classify(err)
	}
	if !found {
		return nil, readErrorf(ReasonNoStats, "answer has no cluster_statuses")
	}
	return p.clusters, nil
}

type clustersParser struct {
	dec      *json.Decoder
	bounded  *elementReader
	want     func(string) bool
	clusters []ClusterReading
	seen     int
}

// cluster reads one element of cluster_statuses.
func (p *clustersParser) cluster() error {
	if p.seen++; p.seen > maxClusters {
		return readErrorf(ReasonTooLarge, "more than %d clusters", maxClusters)
	}
	c := newClusterReading("")
	named, wanted := false, false
	err := p.object(func(key string) error {
		switch key {
		case "name":
			named = true
			if err := p.decode(&c.Name); err != nil {
				return err
			}
			wanted = p.want(c.Name)
			return nil
		case "host_statuses":
			return p.array(func() error {
				// The name comes first in what Envoy writes, but JSON does
				// not promise an order.
				if named && !wanted {
					return p.skip()
				}
				var h hostStatus
				if err := p.decode(&h); err != nil {
					return err
				}
				c.Endpoints = append(c.Endpoints, h.reading())
				return nil
			})
		default:
			return p.skip()
		}
	})
	if err == nil && wanted {
		p.clusters = append(p.clusters, *c)
	}
	return err
}

// object reads an object, calling field with each key to read the value.
// null, which proto3's JSON allows for an absent message, is an empty object.
func (p *clustersParser) object(field func(key string) error) error {
	t, err := p.token()
	if err != nil || t == nil {
		return err
	}
	if t != json.Delim('{') {
		return fmt.Errorf("expected an object, found %v", t)
	}
	for p.more() {
		key, err := p.token()
		if err != nil {
			return err
		}
		if err := field(key.(string)); err != nil {
			return err
		}
	}
	_, err = p.token()
	return err
}

// array reads an array, calling element to read each element.
func (p *clustersParser) array(element func() error) error {
	t, err := p.token()
	if err != nil || t == nil {
		return err
	}
	if t != json.Delim('[') {
		return fmt.Errorf("expected an array, found %v", t)
	}
	for p.more() {
		if err := element(); err != nil {
			return err
		}
	}
	_, err = p.token()
	return err
}

func (p *clustersParser) more() bool {
	p.bounded.advance(p.dec.InputOffset())
	return p.dec.More()
}

func (p *clustersParser) token() (json.Token, error) {
	p.bounded.advance(p.dec.InputOffset())
	t, err := p.dec.Token()
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return t, err
}

func (p *clustersParser) decode(v any) error {
	p.bounded.advance(p.dec.InputOffset())
	err := p.dec.Decode(v)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// skip passes over one value.
func (p *clustersParser) skip() error {
	var nothing struct{}
	err := p.decode(&nothing)
	var mismatch *json.UnmarshalTypeError
	if errors.As(err, &mismatch) {
		return nil
	}
	return err
}

// end makes sure that nothing follows the document.
func (p *clustersParser) end() error {
	p.bounded.advance(p.dec.InputOffset())
	t, err := p.dec.Token()
	if errors.Is(err, io.EOF) {
		return nil
	}
	if err == nil {
		err = fmt.Errorf("unexpected %v after the document", t)
	}
	return err
}

// classify names the reason of an error. Those of the reader, a broken
// connection for instance, are not the document's.
func (p *clustersParser) classify(err error) error {
	var re *ReadError
	if errors.As(err, &re) {
		return err
	}
	if p.bounded.err != nil {
		return fmt.Errorf("reading after %d bytes: %w", p.dec.InputOffset(), p.bounded.err)
	}
	return readErrorf(ReasonMalformed, "byte %d: %w", p.dec.InputOffset(), err)
}

// elementReader bounds how far a decoder may read ahead of the last element
// it returned. encoding/json holds a whole element in memory; without a bound
// a single string could be as large as the body.
type elementReader struct {
	r            io.Reader
	given, limit int64
	// err is the error of r other than io.EOF.
	err error
}

// advance allows maxElement more bytes from the given offset on.
func (e *elementReader) advance(offset int64) { e.limit = offset + maxElement }

func (e *elementReader) Read(b []byte) (int, error) {
	left := e.limit - e.given
	if left <= 0 {
		return 0, readErrorf(ReasonTooLarge, "an element is larger than %d bytes", maxElement)
	}
	if int64(len(b)) > left {
		b = b[:left]
	}
	n, err := e.r.Read(b)
	e.given += int64(n)
	if err != nil && !errors.Is(err, io.EOF) {
		e.err = err
	}
	return n, err
}
