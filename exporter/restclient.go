package exporter

import (
	"context"
	"net/url"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/tools/metrics"
)

// restClient holds the metrics of client-go's REST clients under the names
// that component-base and controller-runtime use. URLs are never labels.
type restClient struct {
	requests, retries    *prometheus.CounterVec
	duration, throttling *prometheus.HistogramVec
}

func newRESTClient() *restClient {
	histogram := func(name, help string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Subsystem: "rest_client", Name: name, Help: help,
			Buckets:                         []float64{.005, .025, .1, .25, .5, 1, 2, 4, 8, 15, 30, 60},
			NativeHistogramBucketFactor:     1.1,
			NativeHistogramMaxBucketNumber:  100,
			NativeHistogramMinResetDuration: time.Hour,
		}, []string{"verb", "host"})
	}
	counter := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{
			Subsystem: "rest_client", Name: name, Help: help,
		}, []string{"code", "method", "host"})
	}
	return &restClient{
		requests:   counter("requests_total", "Requests to the API server, by status code, or code <error> when there was no response."),
		retries:    counter("request_retries_total", "Requests to the API server that were sent again."),
		duration:   histogram("request_duration_seconds", "Time requests to the API server took."),
		throttling: histogram("rate_limiter_duration_seconds", "Time requests waited for the client's own rate limiter."),
	}
}

func (c *restClient) collectors() []prometheus.Collector {
	return []prometheus.Collector{c.requests, c.retries, c.duration, c.throttling}
}

// install offers the metrics to client-go and reports whether it took them.
func (c *restClient) install() bool {
	duration := requestLatency{c.duration}
	result := requestResult{c.requests}
	metrics.Register(metrics.RegisterOpts{
		RequestLatency:     duration,
		RateLimiterLatency: requestLatency{c.throttling},
		RequestResult:      result,
		RequestRetry:       requestRetry{c.retries},
	})
	return metrics.RequestLatency == metrics.LatencyMetric(duration) &&
		metrics.RequestResult == metrics.ResultMetric(result)
}

type requestLatency struct{ *prometheus.HistogramVec }

func (m requestLatency) Observe(_ context.Context, verb string, u url.URL, latency time.Duration) {
	m.WithLabelValues(verb, u.Host).Observe(latency.Seconds())
}

type requestResult struct{ *prometheus.CounterVec }

func (m requestResult) Increment(_ context.Context, code, method, host string) {
	m.WithLabelValues(code, method, host).Inc()
}

type requestRetry struct{ *prometheus.CounterVec }

func (m requestRetry) IncrementRetry(_ context.Context, code, method, host string) {
	m.WithLabelValues(code, method, host).Inc()
}
