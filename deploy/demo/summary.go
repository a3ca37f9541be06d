package main

import (
	"context"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// failures are the failed requests a second of each pod of reviews: what the check of
// requests counts, drawn over time.
const failures = `sum by (pod) (rate(http_server_request_duration_seconds_count{pod=~"reviews-.+",http_response_status_code=~"5.."}[10s]))`

// graph is where to see an expression over the latest quarter of an hour: on Prometheus's
// page, or without that in its API.
func graph(base, expression string, pages bool, now time.Time) string {
	if pages {
		return base + "/graph?" + url.Values{"g0.expr": {expression}, "g0.tab": {"0"}, "g0.range_input": {"15m"}}.Encode()
	}
	return base + "/api/v1/query_range?" + url.Values{
		"query": {expression}, "step": {"5"},
		"start": {strconv.FormatInt(now.Add(-15*time.Minute).Unix(), 10)}, "end": {strconv.FormatInt(now.Unix(), 10)},
	}.Encode()
}

// summary shows what became of the releases on evidence.
func (d *demo) summary(ctx context.Context) error {
	if d.ownCluster() {
		return nil
	}
	// Without end, the users' requests would push these traces out of Jaeger's memory.
	if err := d.load.stop(ctx); err != nil {
		return err
	}
	d.load = nil
	d.begin("What was decided, and why")
	var table strings.Builder
	if err := writeTable(&table, "   ", d.bookinfo.released); err != nil {
		return err
	}
	d.print("%s", table.String())
	d.print("\n")
	peak, err := d.prometheus.query(ctx, "max(max_over_time(("+failures+")[10m:1s]))")
	if err != nil {
		return err
	}
	d.note("Failed requests a second of each pod of reviews, in Prometheus (at most %.1f):", peak)
	d.note("  %s", graph(d.prometheus.url, failures, d.programs.prometheusPages, d.now()))
	d.note("What the gate asks Prometheus, as sent:")
	d.note("  kubectl -n %s get canary %s -o jsonpath='{range .status.gate.checks[*].queries[*]}{@}{\"\\n\\n\"}{end}'", bookinfoNamespace, bookinfoCanary)
	d.note("Traces of the rollouts, in Jaeger:")
	for _, r := range d.bookinfo.released {
		t, err := d.findTrace(ctx, "the trace of the rollout of "+r.release, trace.rolloutEnded, d.traceAPI(r.traceID))
		if err != nil {
			return err
		}
		d.note("  %s  (%s: %d spans)", d.tracePage(r.traceID), r.release, len(t.Spans))
	}
	d.note("Trace of a user's request that failed in reviews v3:")
	d.note("  %s", d.tracePage(d.bookinfo.failure.TraceID))
	return nil
}

// urls says where to look around.
func (d *demo) urls(ctx context.Context) error {
	addresses, err := d.operatorAddresses(ctx)
	if err != nil {
		return err
	}
	d.begin("Look around")
	d.note("Prometheus  %s  (%s)", d.prometheus.url, pagesOf("prometheus", d.programs.prometheusPages))
	if d.jaeger != nil {
		d.note("Jaeger      %s  (%s)", d.jaeger.QueryURL, pagesOf("jaeger", d.programs.jaegerPages))
	}
	for _, address := range addresses {
		d.note("operator    http://%s/metrics", address)
	}
	if d.ownCluster() {
		d.note("kubectl     export KUBECONFIG=%s", d.kubeconfig)
		return nil
	}
	d.note("bookinfo    %s", d.bookinfo.page)
	d.note("            its users have gone; for others: ADMIN_ADDR=127.0.0.1:0 %s load -url %s", d.programs.bookinfo, d.bookinfo.page)
	d.note("kubectl     export KUBECONFIG=%s PATH=%s:$PATH", d.kubeconfig, d.binDir())
	d.note("            kubectl canary list -A")
	d.note("            without a kubectl of your own: %s kubectl --dir %s -- get canaries -A", d.programs.lab, d.labDir())
	return nil
}
