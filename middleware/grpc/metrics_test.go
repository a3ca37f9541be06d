package grpcmw

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/grpc/codes"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"
)

func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Second); !cond(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within 5 s: %s", what)
		}
	}
}

func series(t *testing.T, reg prometheus.Gatherer, name string) []*dto.Metric {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()
		}
	}
	return nil
}

// count returns how many calls a series counted, or -1 when it is missing.
func (r *rig) count(t *testing.T, name, method, code string) int {
	t.Helper()
	for _, m := range series(t, r.reg, name) {
		labels := map[string]string{}
		for _, l := range m.GetLabel() {
			labels[l.GetName()] = l.GetValue()
		}
		if labels["rpc_method"] == method && labels["rpc_response_status_code"] == code {
			return int(m.GetHistogram().GetSampleCount())
		}
	}
	return -1
}

const (
	unaryMethod  = "grpc.testing.TestService/UnaryCall"
	duplexMethod = "grpc.testing.TestService/FullDuplexCall"
	serverMetric = "rpc_server_call_duration_seconds"
	clientMetric = "rpc_client_call_duration_seconds"
)

func TestUnaryCallsAreCountedByStatus(t *testing.T) {
	r := newRig(t, nil, nil)
	if got := r.count(t, serverMetric, unaryMethod, "UNAVAILABLE"); got != 0 {
		t.Errorf("before the first call the series has %d, want 0: it must exist", got)
	}
	for _, err := range []error{nil, nil, status.Error(codes.NotFound, "x"), status.Error(codes.Code(99), "x"), errors.New("plain")} {
		r.service.unary = func(context.Context) error { return err }
		_, _ = r.client.UnaryCall(t.Context(), &testpb.SimpleRequest{})
	}
	for _, metric := range []string{serverMetric, clientMetric} {
		for code, want := range map[string]int{"OK": 2, "NOT_FOUND": 1, "UNKNOWN": 2} {
			if got := r.count(t, metric, unaryMethod, code); got != want {
				t.Errorf("%s %s: %d, want %d", metric, code, got, want)
			}
		}
	}
}

func TestStreamsAreCountedWhenTheyEnd(t *testing.T) {
	r := newRig(t, nil, nil)
	r.service.stream = func(ss testpb.TestService_FullDuplexCallServer) error {
		for {
			if _, err := ss.Recv(); err != nil {
				if errors.Is(err, io.EOF) {
					return nil
				}
				return err
			}
			if err := ss.Send(&testpb.StreamingOutputCallResponse{}); err != nil {
				return err
			}
		}
	}
	open := func(ctx context.Context) testpb.TestService_FullDuplexCallClient {
		t.Helper()
		cs, err := r.client.FullDuplexCall(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if err := cs.Send(&testpb.StreamingOutputCallRequest{}); err != nil {
				t.Fatal(err)
			}
			if _, err := cs.Recv(); err != nil {
				t.Fatal(err)
			}
		}
		return cs
	}

	cs := open(t.Context())
	if got := r.count(t, clientMetric, duplexMethod, "OK"); got > 0 {
		t.Errorf("counted %d before the end", got)
	}
	if err := cs.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if _, err := cs.Recv(); !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	// A caller that cancels and goes away.
	ctx, cancel := context.WithCancel(t.Context())
	open(ctx)
	cancel()

	for _, metric := range []string{clientMetric, serverMetric} {
		for _, code := range []string{"OK", "CANCELLED"} {
			eventually(t, metric+" "+code, func() bool { return r.count(t, metric, duplexMethod, code) == 1 })
		}
	}
	r.ended(t, 4)
}

func TestExemplarsNameSampledTraces(t *testing.T) {
	r := newRig(t, nil, nil)
	exemplars := func() (out []string) {
		for _, m := range series(t, r.reg, serverMetric) {
			for _, b := range m.GetHistogram().GetBucket() {
				for _, l := range b.GetExemplar().GetLabel() {
					out = append(out, l.GetName()+"="+l.GetValue())
				}
			}
		}
		return out
	}
	r.call(t, incoming(t, nil, map[string]string{"b3": traceID + "-" + spanID + "-0"}))
	if got := exemplars(); len(got) != 0 {
		t.Errorf("an unsampled call left exemplars %v", got)
	}
	r.call(t, incoming(t, nil, map[string]string{"b3": traceID + "-" + spanID + "-1"}))
	if got := exemplars(); len(got) != 1 || got[0] != "trace_id="+traceID {
		t.Errorf("exemplars %v, want the trace", got)
	}
}

func TestMethodsAreBounded(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	m, err := newMetrics(reg, serverSide)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 10 * maxMethods {
		m.start(t.Context(), fmt.Sprintf("/evil.Service/\xff%d", i))(nil)
	}
	if n := len(series(t, reg, serverMetric)); n != maxMethods+1 {
		t.Errorf("%d series, want %d and one for the rest", n, maxMethods)
	}
	if len(m.known) > maxMethods+1 {
		t.Errorf("the cache has %d methods", len(m.known))
	}
}
