package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/canarycontroller/canary-controller/deploy/servers"
)

// startJaeger starts it before the lab, whose image table tells pods where it is.
func (d *demo) startJaeger(ctx context.Context) error {
	if d.ownCluster() {
		d.note("Skipped in your own cluster: Jaeger and bookinfo, whose pods reach what runs here only in the lab")
		return nil
	}
	address, err := freeAddress(ctx, 16686)
	if err != nil {
		return err
	}
	d.jaeger, err = servers.StartJaeger(ctx, servers.JaegerOptions{Options: servers.Options{Program: d.programs.jaeger}, QueryAddress: address})
	if err != nil {
		return err
	}
	d.saw("Jaeger takes spans at %s", d.jaeger.OTLPHTTP)
	return nil
}

// trace is one of Jaeger's, in the JSON of its query API.
type trace struct {
	TraceID   string
	Spans     []span
	Processes map[string]struct{ ServiceName string }
}

type span struct {
	OperationName, ProcessID string
	References               []struct{ RefType string }
	Tags                     []struct {
		Key   string
		Value any
	}
}

// has says that the span's tag has the value, as text.
func (s span) has(key, value string) bool {
	for _, tag := range s.Tags {
		if tag.Key == key && fmt.Sprint(tag.Value) == value {
			return true
		}
	}
	return false
}

// services that took part, sorted.
func (t trace) services() []string {
	var names []string
	for _, p := range t.Processes {
		names = append(names, p.ServiceName)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// any says that a span of the service meets the condition.
func (t trace) any(service string, is func(span) bool) bool {
	return slices.ContainsFunc(t.Spans, func(s span) bool {
		return t.Processes[s.ProcessID].ServiceName == service && is(s)
	})
}

// failedInReviews says that this is a user's request that failed because reviews did.
func (t trace) failedInReviews() bool {
	status := func(code string) func(span) bool {
		return func(s span) bool {
			return s.has("span.kind", "server") && s.has("http.response.status_code", code)
		}
	}
	return t.any("reviews", status("500")) && t.any("productpage", status("502"))
}

// throughAllServices says that the request passed through each of bookinfo's services.
func (t trace) throughAllServices() bool {
	names := t.services()
	return !slices.ContainsFunc(bookinfoServices, func(s string) bool { return !slices.Contains(names, s) })
}

// rolloutEnded says that this is the trace of a rollout whose first span, which is sent
// last, has arrived.
func (t trace) rolloutEnded() bool {
	return t.any(operatorName, func(s span) bool {
		return !slices.ContainsFunc(s.References, func(r struct{ RefType string }) bool { return r.RefType == "CHILD_OF" })
	})
}

// tracePage is where to look at a trace: in Jaeger's pages, or without those in its API.
func (d *demo) tracePage(id string) string {
	if d.programs.jaegerPages {
		return d.jaeger.QueryURL + "/trace/" + id
	}
	return d.traceAPI(id)
}

func (d *demo) traceAPI(id string) string { return d.jaeger.QueryURL + "/api/traces/" + id }

// searchAPI is a search among the latest traces of a service, by tags if any.
func (d *demo) searchAPI(service string, tags map[string]string) (string, error) {
	query := url.Values{"service": {service}, "limit": {"20"}, "lookback": {"1h"}}
	if len(tags) > 0 {
		text, err := json.Marshal(tags)
		if err != nil {
			return "", err
		}
		query.Set("tags", string(text))
	}
	return d.jaeger.QueryURL + "/api/traces?" + query.Encode(), nil
}

// findTrace waits until one of the addresses has a trace that is what it should be.
func (d *demo) findTrace(ctx context.Context, what string, is func(trace) bool, addresses ...string) (trace, error) {
	for {
		waiting := fmt.Errorf("%s is not in Jaeger yet", what)
		for _, address := range addresses {
			var answer struct{ Data []trace }
			if err := getJSON(ctx, address, &answer); err != nil {
				waiting = errors.Join(waiting, err)
			}
			if i := slices.IndexFunc(answer.Data, is); i >= 0 {
				return answer.Data[i], nil
			}
		}
		if err := d.pause(ctx, waiting); err != nil {
			return trace{}, err
		}
	}
}

// failedRequest finds a failed user's request: one of those that the gate's check named as
// examples, or else any.
func (d *demo) failedRequest(ctx context.Context, examples []string) (trace, error) {
	search, err := d.searchAPI("reviews", map[string]string{"error": "true"})
	if err != nil {
		return trace{}, err
	}
	var addresses []string
	for _, id := range examples {
		addresses = append(addresses, d.traceAPI(id))
	}
	return d.findTrace(ctx, "a request that failed because reviews did", trace.failedInReviews, append(addresses, search)...)
}

func getJSON(ctx context.Context, address string, into any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s", address, response.Status)
	}
	return json.NewDecoder(io.LimitReader(response.Body, 16<<20)).Decode(into)
}

// pagesOf says whether a server that can be had with or without its web pages has them.
func pagesOf(name string, pages bool) string {
	if pages {
		return "its own web pages"
	}
	return "its API; built from its module, it has no web pages: put a released " + strings.ToLower(name) + " on PATH for those"
}
