package prometheus

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/api"
	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
	"github.com/canarycontroller/canary-controller/controller/gate"
)

const (
	// maxBody bounds an answer, unpacked, in bytes.
	maxBody        = 16 << 20
	maxHeaderBytes = 64 << 10
	// dialTimeout and tlsTimeout leave time for a second try within the default timeout.
	dialTimeout = 5 * time.Second
	tlsTimeout  = 5 * time.Second
)

// newTransport makes one that uses no proxy.
func newTransport(concurrent int) *http.Transport {
	return &http.Transport{
		DialContext:            (&net.Dialer{Timeout: dialTimeout}).DialContext,
		ForceAttemptHTTP2:      true,
		TLSHandshakeTimeout:    tlsTimeout,
		MaxIdleConnsPerHost:    concurrent,
		IdleConnTimeout:        90 * time.Second,
		MaxResponseHeaderBytes: maxHeaderBytes,
	}
}

// guardedTransport is for an address of a Canary: it dials nothing but the admitted host,
// and of that no address that the policy refuses.
func (p policy) guardedTransport(u *url.URL, why admission, resolve string, concurrent int) *http.Transport {
	t := newTransport(concurrent)
	_, port := hostPort(u)
	dialer := &net.Dialer{Timeout: dialTimeout, ControlContext: func(_ context.Context, _, address string, _ syscall.RawConn) error {
		at, err := netip.ParseAddrPort(address)
		if err != nil {
			return fmt.Errorf("dialling %q: %w", address, err)
		}
		return p.checkIP(why, at.Addr())
	}}
	t.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return dialer.DialContext(ctx, network, net.JoinHostPort(resolve, port))
	}
	return t
}

// limitedTransport fails answers that are too long.
type limitedTransport struct{ next http.RoundTripper }

func (t limitedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := t.next.RoundTrip(r)
	if err == nil {
		res.Body = &limitedBody{ReadCloser: res.Body, left: maxBody}
	}
	return res, err
}

type limitedBody struct {
	io.ReadCloser
	left int64
}

func (b *limitedBody) Read(p []byte) (int, error) {
	if b.left <= 0 {
		// The answer may end exactly here.
		n, err := b.ReadCloser.Read(make([]byte, 1))
		if n > 0 {
			err = fmt.Errorf("the answer is longer than %d MiB", maxBody>>20)
		}
		return 0, err
	}
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}

// target is one Prometheus as one evaluation asks it. Its methods are safe for concurrent
// use.
type target struct {
	name        string
	client      api.Client
	api         promv1.API
	credentials credentials
	turns       *turns
	timeout     time.Duration
	config      *Config
	// refused says why it is not asked at all.
	refused *gate.Sample
}

func newTarget(u *url.URL, transport http.RoundTripper, c credentials, turns *turns, timeout time.Duration, config *Config) (*target, error) {
	bare := *u
	bare.User = nil
	client, err := api.NewClient(api.Config{Address: bare.String(), Client: &http.Client{
		Transport: authTransport{next: limitedTransport{next: transport}, credentials: c},
		// A redirect would lead round the address policy and take credentials along.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}})
	if err != nil {
		return nil, err
	}
	return &target{
		name: display(u), client: client, api: promv1.NewAPI(client), credentials: c,
		turns: turns, timeout: timeout, config: config,
	}, nil
}

// ask calls f with the time a query has, when it is its turn, and says in a sample how it
// failed or what f made of the answer.
func (t *target) ask(ctx context.Context, f func(context.Context) (gate.Sample, error)) gate.Sample {
	if t.refused != nil {
		return *t.refused
	}
	release, err := t.turn(ctx)
	if err != nil {
		return failed("%s: %s", t.name, err)
	}
	defer release()
	bounded, cancel := context.WithTimeout(ctx, t.timeout)
	defer cancel()
	start := time.Now()
	sample, err := f(bounded)
	took := time.Since(start)
	if err != nil && ctx.Err() != nil {
		// Not the server's doing.
		return failed("%s: the evaluation was ended: %s", t.name, context.Cause(ctx))
	}
	result := resultSuccess
	if err != nil {
		var text string
		result, text = explain(err, t.timeout)
		sample = failed("%s", text)
	} else if sample.Verdict != "" {
		result = resultError
		if sample.Verdict == v1alpha1.VerdictNoData {
			result = resultNoData
		}
	}
	t.config.Observe(result, took)
	if sample.Problem != "" {
		sample.Problem = t.name + ": " + t.credentials.redact(sample.Problem)
	}
	return sample
}

// turn waits for a turn, as long as a query may take.
func (t *target) turn(ctx context.Context) (release func(), err error) {
	waiting, cancel := context.WithTimeout(ctx, t.timeout)
	defer cancel()
	start := time.Now()
	release, ok := t.turns.take(waiting)
	switch {
	case ok:
		return release, nil
	case ctx.Err() != nil:
		return nil, fmt.Errorf("the evaluation was ended: %w", context.Cause(ctx))
	}
	t.config.Observe(resultTimeout, time.Since(start))
	return nil, fmt.Errorf("too many queries are waiting for it, this one had no turn in %s", t.timeout)
}

// query asks for one number at the server's own time.
func (t *target) query(ctx context.Context, promQL string) gate.Sample {
	return t.ask(ctx, func(ctx context.Context) (gate.Sample, error) {
		value, _, _, err := t.api.Query(ctx, promQL, time.Time{}, promv1.WithTimeout(serverTimeout(t.timeout)))
		if err != nil {
			return gate.Sample{}, err
		}
		return number(value), nil
	})
}

// serverTimeout is a timeout in whole seconds: a Go duration such as 1.5s is none to
// Prometheus.
func serverTimeout(d time.Duration) time.Duration {
	return (d + time.Second - 1).Truncate(time.Second)
}

// get asks a part of the API that the client library knows less of than we need. It also
// returns the server's clock, the zero time if it does not tell.
func (t *target) get(ctx context.Context, path string, params url.Values, into any) (time.Time, error) {
	u := t.client.URL(path, nil)
	u.RawQuery = params.Encode()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return time.Time{}, err
	}
	response, body, err := t.client.Do(ctx, request)
	if err != nil {
		return time.Time{}, err
	}
	if response.StatusCode/100 != 2 {
		return time.Time{}, &promv1.Error{Type: promv1.ErrServer, Msg: fmt.Sprintf("code %d", response.StatusCode), Detail: string(body)}
	}
	answer := struct {
		Status, Error string
		ErrorType     promv1.ErrorType
		Data          any
	}{Data: into}
	switch err := json.Unmarshal(body, &answer); {
	case err != nil:
		return time.Time{}, &promv1.Error{Type: promv1.ErrBadResponse, Msg: err.Error()}
	case answer.Status != "success":
		return time.Time{}, &promv1.Error{Type: answer.ErrorType, Msg: answer.Error}
	}
	now, err := http.ParseTime(response.Header.Get("Date"))
	if err != nil {
		return time.Time{}, nil
	}
	return now, nil
}

// clock asks for the server's time.
func (t *target) clock(ctx context.Context) (time.Time, error) {
	value, _, _, err := t.api.Query(ctx, "time()", time.Time{})
	if err != nil {
		return time.Time{}, err
	}
	scalar, ok := value.(*model.Scalar)
	if !ok {
		return time.Time{}, errors.New("time() is not a number")
	}
	return scalar.Timestamp.Time(), nil
}

// withRoots returns the transport with the certificates to verify the server with and the
// name that its certificate must have.
func withRoots(t *http.Transport, c credentials, serverName string) *http.Transport {
	t.TLSClientConfig = &tls.Config{RootCAs: c.roots, ServerName: serverName, MinVersion: tls.VersionTLS12}
	return t
}
