package trace

import (
	"encoding/hex"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
)

const (
	ciTrace  = "4bf92f3577b34da6a3ce929d0e0e4736"
	ciSpan   = "00f067aa0ba902b7"
	ciParent = "00-" + ciTrace + "-" + ciSpan + "-01"
)

var t0 = time.Date(2026, 11, 30, 8, 0, 0, 0, time.UTC)

func at(seconds int) *metav1.Time {
	return new(metav1.NewTime(t0.Add(time.Duration(seconds) * time.Second)))
}

func TestIDsOfTheirOwn(t *testing.T) {
	base := v1alpha1.RolloutStatus{ID: "v1-a", StartedAt: *at(0)}
	trace, parent, err := IDs("uid-1", &base, "")
	// The ids are in the status of rollouts under way: a change of the hash would split their traces.
	if trace != "9a6ff1037c504faa269ea51d5cbfe210" || parent != "" || err != nil {
		t.Errorf("got %s, %q, %v", trace, parent, err)
	}
	elsewhere := base
	elsewhere.StartedAt = metav1.NewTime(t0.In(time.FixedZone("elsewhere", 3600)))
	elsewhere.Outcome, elsewhere.TraceID = v1alpha1.OutcomeFailed, "x"
	if again, _, _ := IDs("uid-1", &elsewhere, ""); again != trace {
		t.Errorf("the same attempt seen elsewhere is in trace %s, not %s", again, trace)
	}
	seen := map[string]string{trace: "base"}
	for name, other := range map[string]struct {
		uid     types.UID
		rollout v1alpha1.RolloutStatus
	}{
		"another Canary":  {"uid-2", base},
		"another release": {"uid-1", v1alpha1.RolloutStatus{ID: "v1-b", StartedAt: *at(0)}},
		"another time":    {"uid-1", v1alpha1.RolloutStatus{ID: "v1-a", StartedAt: *at(1)}},
		"a retry":         {"uid-1", v1alpha1.RolloutStatus{ID: "v1-a", StartedAt: *at(0), Retry: "1"}},
		"shifted parts":   {"uid-1v", v1alpha1.RolloutStatus{ID: "1-a", StartedAt: *at(0)}},
	} {
		id, _, _ := IDs(other.uid, &other.rollout, "")
		if known, twice := seen[id]; twice {
			t.Errorf("%s and %s share trace %s", name, known, id)
		}
		seen[id] = name
	}
}

func TestIDsFromCI(t *testing.T) {
	rollout := &v1alpha1.RolloutStatus{ID: "v1-a", StartedAt: *at(0)}
	trace, parent, err := IDs("uid-1", rollout, ciParent)
	if trace != ciTrace || parent != ciSpan || err != nil {
		t.Errorf("got %s, %s, %v", trace, parent, err)
	}
	if trace, _, err := IDs("uid-1", rollout, strings.TrimSuffix(ciParent, "1")+"0"); trace != ciTrace || err != nil {
		t.Errorf("not sampled: got %s, %v", trace, err)
	}
	own, _, _ := IDs("uid-1", rollout, "")
	for name, test := range map[string]struct{ value, want string }{
		"empty parts":    {"00---", "has 55 characters"},
		"too long":       {ciParent + "-extra", "has 55 characters"},
		"line end":       {ciParent + "\n", "has 55 characters"},
		"upper case":     {"00-" + strings.ToUpper(ciTrace) + "-" + ciSpan + "-01", "character 5 of a traceparent must be one of 0-9 and a-f"},
		"no dash":        {"00_" + ciTrace + "-" + ciSpan + "-01", "character 3 of a traceparent must be a dash"},
		"later version":  {"01" + ciParent[2:], "version 01 of traceparent is not known"},
		"invalid ff":     {"ff" + ciParent[2:], "version ff of traceparent is not known"},
		"zero trace":     {"00-" + strings.Repeat("0", 32) + "-" + ciSpan + "-01", "trace id of a traceparent must not be zero"},
		"zero parent":    {"00-" + ciTrace + "-" + strings.Repeat("0", 16) + "-01", "parent id of a traceparent must not be zero"},
		"flags no hex":   {"00-" + ciTrace + "-" + ciSpan + "-0g", "character 55"},
		"not ASCII":      {"00-" + ciTrace[:30] + "é-" + ciSpan + "-01", "character 34"},
		"b3 single":      {ciTrace + "-" + ciSpan + "-1", "has 55 characters"},
		"dash in digits": {"00-" + ciTrace[:31] + "--" + ciSpan + "-01", "character 35"},
	} {
		trace, parent, err := IDs("uid-1", rollout, test.value)
		if trace != own || parent != "" {
			t.Errorf("%s: got %s below %q, want the attempt's own %s", name, trace, parent, own)
		}
		if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), v1alpha1.AnnotationTraceparent) {
			t.Errorf("%s: got error %v, want %q", name, err, test.want)
		}
	}
}

func TestSpanIDsTellAttemptsApart(t *testing.T) {
	trace, _ := hex.DecodeString(ciTrace)
	first := &v1alpha1.RolloutStatus{ID: "v1-a", StartedAt: *at(0)}
	seen := map[string]string{}
	for name, id := range map[string][]byte{
		"rollout":         spanID(trace, "uid-1", first, "rollout"),
		"batch":           spanID(trace, "uid-1", first, "batch/1"),
		"another batch":   spanID(trace, "uid-1", first, "batch/11"),
		"apply":           spanID(trace, "uid-1", first, "batch/1/apply"),
		"another Canary":  spanID(trace, "uid-2", first, "rollout"),
		"another release": spanID(trace, "uid-1", &v1alpha1.RolloutStatus{ID: "v1-b", StartedAt: *at(0)}, "rollout"),
		"a retry":         spanID(trace, "uid-1", &v1alpha1.RolloutStatus{ID: "v1-a", StartedAt: *at(60)}, "rollout"),
		"another trace":   spanID(trace[:15], "uid-1", first, "rollout"),
	} {
		if len(id) != spanIDSize {
			t.Errorf("%s: %d bytes", name, len(id))
		}
		if known, twice := seen[string(id)]; twice {
			t.Errorf("%s and %s share a span id", name, known)
		}
		seen[string(id)] = name
	}
}

func TestNoIDIsZero(t *testing.T) {
	if got := hex.EncodeToString(nonZero(make([]byte, spanIDSize))); got != "0000000000000001" {
		t.Errorf("got %s", got)
	}
	if got := hex.EncodeToString(nonZero([]byte{0, 7})); got != "0007" {
		t.Errorf("got %s", got)
	}
}

func TestDecodeTraceID(t *testing.T) {
	for text, want := range map[string]string{
		ciTrace:                  ciTrace,
		strings.ToUpper(ciTrace): ciTrace,
		ciSpan:                   strings.Repeat("0", 16) + ciSpan,
		"":                       "", "xyz": "", ciTrace[:31]: "", ciTrace + "00": "",
		strings.Repeat("0", 32): "", strings.Repeat("0", 16): "", strings.Repeat("g", 32): "",
	} {
		id, ok := decodeTraceID(text)
		if got := hex.EncodeToString(id); ok != (want != "") || ok && got != want {
			t.Errorf("%q: got %s, %t, want %q", text, got, ok, want)
		}
	}
}

func FuzzParseTraceparent(f *testing.F) {
	for _, seed := range []string{ciParent, "", "00-", "ff" + ciParent[2:], strings.ToUpper(ciParent), ciParent + "-", "00-" + strings.Repeat("0", 32) + "-" + ciSpan + "-00"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		trace, parent, err := parseTraceparent(value)
		if err != nil {
			return
		}
		// What is accepted is the one spelling of what was read.
		if want := "00-" + hex.EncodeToString(trace[:]) + "-" + hex.EncodeToString(parent[:]) + "-"; value[:len(value)-2] != want {
			t.Errorf("%q was read as %s", value, want)
		}
		if trace == [traceIDSize]byte{} || parent == [spanIDSize]byte{} {
			t.Errorf("%q has a zero id", value)
		}
		rollout := &v1alpha1.RolloutStatus{ID: "v1-a", StartedAt: *at(0)}
		if traceID, parentID, err := IDs("uid", rollout, value); err != nil || traceID != value[3:35] || parentID != value[36:52] {
			t.Errorf("%q: IDs gives %s, %s, %v", value, traceID, parentID, err)
		}
	})
}
