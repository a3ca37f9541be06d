package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"sigs.k8s.io/yaml"
)

// operatorJob is the name of the scrape job, the label that alerts and
// dashboards select by.
const operatorJob = "canary-controller"

// prometheus is a running Prometheus.
type prometheus struct {
	*process
	url string
}

// scrapeConfig makes a Prometheus scrape the targets. They are listed, not
// discovered: not every packaged Prometheus has the discovery of Kubernetes.
func scrapeConfig(targets []string) ([]byte, error) {
	return yaml.Marshal(map[string]any{
		"global": map[string]any{"scrape_interval": "2s", "scrape_timeout": "2s"},
		"scrape_configs": []any{map[string]any{
			"job_name":       operatorJob,
			"static_configs": []any{map[string]any{"targets": targets}},
		}},
	})
}

// startPrometheus starts it and waits until it has scraped the operator.
func (d *demo) startPrometheus(ctx context.Context) error {
	targets, err := d.operatorAddresses(ctx)
	if err != nil {
		return err
	}
	config, err := scrapeConfig(targets)
	if err != nil {
		return fmt.Errorf("writing Prometheus's configuration: %w", err)
	}
	file := filepath.Join(d.dir, "prometheus.yml")
	if err := os.WriteFile(file, config, 0o600); err != nil {
		return fmt.Errorf("writing Prometheus's configuration: %w", err)
	}
	address, err := freeAddress(ctx, 9090)
	if err != nil {
		return err
	}
	p, err := start(d.dir, "prometheus", nil, nil, d.programs.prometheus,
		"--config.file="+file, "--storage.tsdb.path="+filepath.Join(d.dir, "prometheus"),
		"--web.listen-address="+address, "--log.level=warn")
	if err != nil {
		return err
	}
	d.prometheus = &prometheus{process: p, url: "http://" + address}
	for {
		n, err := d.prometheus.query(ctx, fmt.Sprintf("sum(up{job=%q})", operatorJob))
		if err == nil && int(n) == len(targets) {
			d.watch(p)
			d.saw("Prometheus scrapes the operator: sum(up{job=%q}) is %g", operatorJob, n)
			return nil
		}
		select {
		case <-p.done:
			return fmt.Errorf("prometheus ended: %w\n%s", p.err, p.tail(20))
		case <-ctx.Done():
			return fmt.Errorf("waiting for Prometheus to scrape the operator: %w\n%s", errors.Join(ctx.Err(), err), p.tail(20))
		case <-time.After(pollPeriod):
		}
	}
}

// errNoData says that a query had no result.
var errNoData = errors.New("no data")

// query evaluates an expression whose result is one number.
func (p *prometheus) query(ctx context.Context, expression string) (float64, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+"/api/v1/query?"+url.Values{"query": {expression}}.Encode(), nil)
	if err != nil {
		return 0, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, fmt.Errorf("asking Prometheus for %s: %w", expression, err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	if err != nil {
		return 0, fmt.Errorf("asking Prometheus for %s: %w", expression, err)
	}
	return readNumber(body)
}

// readNumber reads the answer to an instant query, of the form that
// https://prometheus.io/docs/prometheus/latest/querying/api/ gives.
func readNumber(body []byte) (float64, error) {
	var answer struct {
		Status, Error string
		Data          struct {
			Result []struct{ Value [2]any }
		}
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return 0, fmt.Errorf("reading Prometheus's answer: %w", err)
	}
	if answer.Status != "success" {
		return 0, fmt.Errorf("prometheus: %s", answer.Error)
	}
	if len(answer.Data.Result) == 0 {
		return 0, errNoData
	}
	text, ok := answer.Data.Result[0].Value[1].(string)
	if !ok {
		return 0, fmt.Errorf("prometheus: %v is not a sample", answer.Data.Result[0].Value)
	}
	return strconv.ParseFloat(text, 64)
}

// freeAddress is an address on this machine's loopback interface to listen on:
// with the preferred port if nobody has it.
func freeAddress(ctx context.Context, preferred int) (string, error) {
	var errs []error
	for _, port := range []int{preferred, 0} {
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			errs = append(errs, err)
			continue
		}
		return listener.Addr().String(), listener.Close()
	}
	return "", fmt.Errorf("finding a free port: %w", errors.Join(errs...))
}
