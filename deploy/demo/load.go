package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// loadRate is how many pages users ask for in a second: enough for a verdict on a quarter
// of them within a quarter of a minute.
const loadRate = 100

// load is the load generator: the users.
type load struct {
	*process
	metrics string
}

// tally is what users asked for, and what failed for them: answers with status 5xx and
// requests without an answer.
type tally struct{ Requests, Failed int64 }

func (t tally) since(before tally) tally {
	return tally{Requests: t.Requests - before.Requests, Failed: t.Failed - before.Failed}
}

func (t tally) String() string { return fmt.Sprintf("%d of %d", t.Failed, t.Requests) }

// startLoad begins to ask for the page at url until stop.
func (d *demo) startLoad(ctx context.Context, url string) error {
	admin, err := freeAddress(ctx, 0)
	if err != nil {
		return err
	}
	p, err := start(d.dir, "load", nil, []string{"ADMIN_ADDR=" + admin}, d.programs.bookinfo,
		"load", "-url", url, "-rate", strconv.Itoa(loadRate), "-concurrency", "200", "-report", "0")
	if err != nil {
		return err
	}
	d.load = &load{process: p, metrics: "http://" + admin + "/metrics"}
	d.watch(p)
	for {
		counts, err := d.load.counts(ctx)
		if err == nil && counts.Requests >= loadRate {
			d.saw("%d users' requests a second to %s: %s have failed so far", loadRate, url, counts)
			return nil
		}
		if err := d.pause(ctx, errors.Join(errors.New("the load generator has not counted requests yet"), err)); err != nil {
			return fmt.Errorf("%w\n%s", err, p.tail(20))
		}
	}
}

// counts asks the load generator what came back so far.
func (l *load) counts(ctx context.Context) (tally, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, l.metrics, nil)
	if err != nil {
		return tally{}, err
	}
	request.Header.Set("Accept", string(expfmt.NewFormat(expfmt.TypeTextPlain)))
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return tally{}, fmt.Errorf("asking the load generator for its metrics: %w", err)
	}
	defer response.Body.Close()
	return readTally(io.LimitReader(response.Body, 1<<20))
}

// readTally reads the request metrics of the middleware's client. Its label of the status
// is empty when there was no answer.
func readTally(text io.Reader) (tally, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(text)
	if err != nil {
		return tally{}, fmt.Errorf("reading the load generator's metrics: %w", err)
	}
	var t tally
	for _, series := range families["http_client_request_duration_seconds"].GetMetric() {
		n := int64(series.GetHistogram().GetSampleCount())
		t.Requests += n
		if status := labelOf(series, "http_response_status_code"); status == "" || strings.HasPrefix(status, "5") {
			t.Failed += n
		}
	}
	return t, nil
}

func labelOf(series *dto.Metric, name string) string {
	for _, label := range series.GetLabel() {
		if label.GetName() == name {
			return label.GetValue()
		}
	}
	return ""
}
