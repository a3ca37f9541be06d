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

	"sigs.k8s.io/yaml"
)

// The names of the scrape jobs, by which alerts and dashboards select.
const (
	operatorJob = "canary-controller"
	bookinfoJob = "bookinfo"
)

// prometheus is a Prometheus, which runs or may run again.
type prometheus struct {
	*process
	config, data, address string
	url                   string
}

// scrapeConfig makes a Prometheus scrape what the files of the jobs in dir name.
func scrapeConfig(dir string, jobs ...string) ([]byte, error) {
	var configs []any
	for _, job := range jobs {
		configs = append(configs, map[string]any{
			"job_name":        job,
			"file_sd_configs": []any{map[string]any{"files": []string{filepath.Join(dir, job+".json")}}},
		})
	}
	return yaml.Marshal(map[string]any{
		"global":         map[string]any{"scrape_interval": "1s", "scrape_timeout": "1s"},
		"scrape_configs": configs,
	})
}

// startPrometheus starts it and the writing of what it is to scrape.
func (d *demo) startPrometheus(ctx context.Context) error {
	for _, dir := range []string{d.targetsDir(), d.bookinfo.endpoints} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	config, err := scrapeConfig(d.targetsDir(), operatorJob, bookinfoJob)
	if err != nil {
		return fmt.Errorf("writing Prometheus's configuration: %w", err)
	}
	p := &prometheus{config: filepath.Join(d.dir, "prometheus.yml"), data: filepath.Join(d.dir, "prometheus")}
	if err := os.WriteFile(p.config, config, 0o600); err != nil {
		return fmt.Errorf("writing Prometheus's configuration: %w", err)
	}
	if p.address, err = freeAddress(ctx, 9090); err != nil {
		return err
	}
	p.url = "http://" + p.address
	d.prometheus = p
	if err := d.runPrometheus(); err != nil {
		return err
	}
	if err := d.untilReady(ctx, p.url+"/-/ready"); err != nil {
		return fmt.Errorf("%w\n%s", err, p.tail(20))
	}
	d.saw("Prometheus scrapes every second, at %s", p.url)
	if !d.ownCluster() {
		d.follow(ctx)
	}
	return nil
}

// runPrometheus starts the process, at the same address and with the same data each time.
func (d *demo) runPrometheus() error {
	p := d.prometheus
	var err error
	p.process, err = start(d.dir, "prometheus", nil, nil, d.programs.prometheus,
		"--config.file="+p.config, "--storage.tsdb.path="+p.data, "--web.listen-address="+p.address,
		"--enable-feature=exemplar-storage", "--log.level=warn")
	if err != nil {
		return err
	}
	d.watch(p.process)
	return nil
}

// scraped waits until an expression has the value that it has when all targets are scraped.
func (d *demo) scraped(ctx context.Context, expression string, want int) error {
	for {
		n, err := d.prometheus.query(ctx, expression)
		if err == nil && int(n) == want {
			d.saw("Prometheus scrapes them: %s is %d", expression, want)
			return nil
		}
		if err := d.pause(ctx, errors.Join(fmt.Errorf("%s is %g, not %d", expression, n, want), err)); err != nil {
			return fmt.Errorf("%w\n%s", err, d.prometheus.tail(20))
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
