package prometheus

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math"
	"net/url"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
	"github.com/canarycontroller/canary-controller/controller/gate"
	"github.com/canarycontroller/canary-controller/exporter/canary"
)

func vector(values ...float64) model.Vector {
	v := model.Vector{}
	for i, value := range values {
		v = append(v, &model.Sample{Metric: model.Metric{"pod": model.LabelValue(fmt.Sprint("p", i))}, Value: model.SampleValue(value)})
	}
	return v
}

func TestNumber(t *testing.T) {
	for name, tc := range map[string]struct {
		value model.Value
		want  gate.Sample
	}{
		"one series":   {vector(7.5), gate.Sample{Value: 7.5}},
		"scalar":       {&model.Scalar{Value: 3}, gate.Sample{Value: 3}},
		"zero":         {vector(0), gate.Sample{}},
		"empty":        {model.Vector{}, noData("the query returns no series")},
		"NaN":          {vector(math.NaN()), noData("the query returns NaN")},
		"NaN scalar":   {&model.Scalar{Value: model.SampleValue(math.NaN())}, noData("the query returns NaN")},
		"+Inf":         {vector(math.Inf(1)), failed("the query returns +Inf")},
		"-Inf":         {vector(math.Inf(-1)), failed("the query returns -Inf")},
		"two series":   {vector(1, 2), failed(`the query returns 2 series, it must return one: {pod="p0"}, {pod="p1"}`)},
		"three series": {vector(1, 2, 3), failed(`the query returns 3 series, it must return one: {pod="p0"}, {pod="p1"}, {pod="p2"}`)},
		"five series":  {vector(1, 2, 3, 4, 5), failed(`the query returns 5 series, it must return one: {pod="p0"}, {pod="p1"}, {pod="p2"} and 2 more`)},
		// Two that are not numbers are no less ambiguous.
		"two NaN":   {vector(math.NaN(), math.NaN()), failed(`the query returns 2 series, it must return one: {pod="p0"}, {pod="p1"}`)},
		"histogram": {model.Vector{{Histogram: &model.SampleHistogram{}}}, failed("the query returns a native histogram, it must return a number")},
		"matrix":    {model.Matrix{}, failed("the query returns a range, it must return one number")},
		"string":    {&model.String{Value: "1"}, failed("the query returns a string, it must return a number")},
	} {
		if got := number(tc.value); got != tc.want {
			t.Errorf("%s: %+v, want %+v", name, got, tc.want)
		}
	}
	if got := count(gate.Sample{Value: -0.5}); got != failed("the query returns -0.5, a count cannot be negative") {
		t.Errorf("a negative count: %+v", got)
	}
	if got := count(noData("x")); got != noData("x") {
		t.Errorf("no count: %+v", got)
	}
}

func TestClip(t *testing.T) {
	for _, text := range []string{"", "short", strings.Repeat("ü", 400), strings.Repeat("x", 255) + "ü", "a\nb\tc", "\xff\xfe"} {
		got := clip(text)
		if !utf8.ValidString(got) || len(got) > maxProblem+len("…") || strings.ContainsAny(got, "\n\t") {
			t.Errorf("clip(%q) = %q", text, got)
		}
	}
}

func TestExplain(t *testing.T) {
	const secret = "http://user:hunter2@prometheus:9090/api/v1/query"
	for name, tc := range map[string]struct {
		err          error
		result, text string
	}{
		"400":           {&promv1.Error{Type: promv1.ErrBadData, Msg: "1:4: parse error: unexpected end"}, "error", "bad_data: 1:4: parse error: unexpected end"},
		"422":           {&promv1.Error{Type: promv1.ErrExec, Msg: "found duplicate series"}, "error", "execution: found duplicate series"},
		"401":           {&promv1.Error{Type: promv1.ErrClient, Msg: "client error: 401", Detail: "<html>secret page</html>"}, "error", "the answer is 401 Unauthorized"},
		"503":           {&promv1.Error{Type: promv1.ErrServer, Msg: "server error: 503", Detail: "upstream"}, "error", "the answer is 503 Service Unavailable"},
		"599":           {&promv1.Error{Type: promv1.ErrServer, Msg: "server error: 599"}, "error", "the answer is 599"},
		"503 timeout":   {&promv1.Error{Type: promv1.ErrServer, Msg: "server error: 503", Detail: `{"status":"error","errorType":"timeout","error":"query timed out in expression evaluation"}`}, "timeout", "timeout: query timed out in expression evaluation"},
		"500 internal":  {&promv1.Error{Type: promv1.ErrServer, Msg: "server error: 500", Detail: `{"status":"error","errorType":"internal","error":"disk"}`}, "error", "internal: disk"},
		"redirect":      {&promv1.Error{Type: promv1.ErrBadResponse, Msg: "bad response code 302"}, "error", "the answer is a redirect (302), which is not followed"},
		"string":        {&promv1.Error{Type: promv1.ErrBadResponse, Msg: `unexpected value type "string"`}, "error", "the query returns a string, it must return a number"},
		"a page":        {&promv1.Error{Type: promv1.ErrBadResponse, Msg: "invalid character '<' looking for beginning of value"}, "error", "the answer is not one of Prometheus's API"},
		"deadline":      {&url.Error{Op: "Post", URL: secret, Err: context.DeadlineExceeded}, "timeout", "no answer in 3s"},
		"refused":       {&url.Error{Op: "Post", URL: secret, Err: errors.New("dial tcp 10.0.0.1:9090: connect: connection refused")}, "error", "dial tcp 10.0.0.1:9090: connect: connection refused"},
		"nested":        {fmt.Errorf("asking: %w", &url.Error{Op: "Post", URL: secret, Err: &url.Error{Op: "Get", URL: secret, Err: errors.New("lost")}}), "error", "lost"},
		"certificate":   {&url.Error{Op: "Post", URL: secret, Err: &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}}, "error", "the server's certificate is not accepted: x509: certificate signed by unknown authority"},
		"long":          {errors.New(strings.Repeat("x", 1000)), "error", strings.Repeat("x", maxProblem) + "…"},
		"bad_data long": {&promv1.Error{Type: promv1.ErrBadData, Msg: strings.Repeat("y", 1000)}, "error", "bad_data: " + strings.Repeat("y", maxProblem-10) + "…"},
	} {
		result, text := explain(tc.err, 3*time.Second)
		if result != tc.result || text != tc.text {
			t.Errorf("%s: %s, %q; want %s, %q", name, result, text, tc.result, tc.text)
		}
		if strings.Contains(text, "hunter2") || strings.Contains(text, "user") {
			t.Errorf("%s: %q has credentials", name, text)
		}
	}
}

// The results are those that the metric has.
func TestResultsAreTheMetrics(t *testing.T) {
	for got, want := range map[string]canary.QueryResult{
		resultSuccess: canary.QuerySuccess, resultNoData: canary.QueryNoData, resultTimeout: canary.QueryTimeout, resultError: canary.QueryError,
	} {
		if got != string(want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestOutlierValue(t *testing.T) {
	number := func(f float64) gate.Sample { return gate.Sample{Value: f} }
	for name, tc := range map[string]struct {
		share, observed, age gate.Sample
		want                 gate.Sample
	}{
		"ejected":           {number(.5), number(3), number(10), number(.5)},
		"none ejected":      {number(0), number(1), number(120), number(0)},
		"nobody looks":      {noData("none"), number(0), number(10), noData("ejections are not known: no caller's proxy was observed")},
		"not observed":      {noData("none"), noData("none"), number(10), noData("ejections are not known: no caller's proxy was observed")},
		"old":               {number(0), number(3), number(121), noData("ejections are not known: they were last read more than 2m0s ago")},
		"never read":        {number(0), number(3), number(1.7e9), noData("ejections are not known: they were last read more than 2m0s ago")},
		"not exported":      {noData("none"), noData("none"), noData("none"), noData("ejections are not known: canary_outlier_last_success_timestamp_seconds has no value")},
		"unreachable":       {failed("x"), failed("x"), failed("x"), failed("x")},
		"no endpoints":      {noData("none"), number(3), number(1), noData("none")},
		"share is an error": {failed("x"), number(3), number(1), failed("x")},
		"age is an error":   {number(0), number(3), failed("y"), failed("y")},
	} {
		if got := outlierValue(tc.share, tc.observed, tc.age, maxOutlierAge); got != tc.want {
			t.Errorf("%s: %+v, want %+v", name, got, tc.want)
		}
	}
	spec := &v1alpha1.Gate{}
	if got := outlierAge(spec); got != 2*time.Minute {
		t.Errorf("age %s by default", got)
	}
}
