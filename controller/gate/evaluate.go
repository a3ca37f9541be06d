package gate

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
)

// Limits of the lists in status, as the API documents them.
const (
	maxHistory          = 20
	maxDecisions        = 30
	maxTraceIDs         = 3
	maxDecisionTraceIDs = 10
)

// defaulted is a copy of the spec in which what its author left out is filled in.
func defaulted(spec *v1alpha1.Gate) *v1alpha1.Gate {
	c := v1alpha1.Canary{Spec: v1alpha1.CanarySpec{Gate: spec.DeepCopy()}}
	v1alpha1.SetDefaults(&c)
	return c.Spec.Gate
}

// second is a time as status keeps it.
func second(t time.Time) metav1.Time {
	return metav1.NewTime(t.Truncate(time.Second))
}

// current says that the status is of the batch and window that are judged now.
func current(status *v1alpha1.GateStatus, s Situation) bool {
	start := second(s.WindowStart)
	return status != nil && status.Batch == s.Batch && status.WindowStart.Equal(&start)
}

// specHash identifies what a verdict on a check is about: the check and what all checks of
// its gate have in common.
func specHash(spec *v1alpha1.Gate, check any) string {
	content, err := json.Marshal(struct {
		Prometheus                    *v1alpha1.PrometheusSource
		FalseRollback, FalsePromotion string
		Check                         any
	}{spec.Prometheus, spec.FalseRollback, spec.FalsePromotion, check})
	if err != nil {
		// They came as JSON.
		panic(fmt.Sprintf("hash of a check: %v", err))
	}
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:8])
}

// evaluatedAs says that the checks in status are those of a defaulted spec, as they are now.
func evaluatedAs(spec *v1alpha1.Gate, status *v1alpha1.GateStatus) bool {
	names := map[string]bool{}
	same := func(name string, kind v1alpha1.CheckKind, check any) bool {
		names[name] = true
		found := find(status.Checks, name, kind)
		return found != nil && found.SpecHash == specHash(spec, check)
	}
	for _, check := range spec.Checks {
		if !same(check.Name, check.Kind(), check) {
			return false
		}
	}
	for _, alert := range spec.Alerts {
		if !same(AlertName(alert), v1alpha1.CheckAlert, alert) {
			return false
		}
	}
	return len(status.Checks) == len(names)
}

// continued is a copy of the status to go on from: its own, or the beginning of a batch that
// it is not about.
func continued(status *v1alpha1.GateStatus, s Situation) *v1alpha1.GateStatus {
	if current(status, s) {
		return status.DeepCopy()
	}
	return begin(status, s)
}

// begin is the status before the first evaluation of a batch. What outlives a batch are the
// decisions, and of each check the old version's counts.
func begin(before *v1alpha1.GateStatus, s Situation) *v1alpha1.GateStatus {
	after := &v1alpha1.GateStatus{Batch: s.Batch, WindowStart: second(s.WindowStart), HeldSince: new(second(s.WindowStart))}
	if before == nil {
		return after
	}
	before = before.DeepCopy()
	after.Decisions = before.Decisions
	for _, check := range before.Checks {
		if check.Baseline != nil {
			after.Checks = append(after.Checks, v1alpha1.CheckStatus{
				Name: check.Name, Kind: check.Kind, Verdict: v1alpha1.VerdictNoData,
				Message: "not evaluated yet in this batch", Baseline: check.Baseline, SpecHash: check.SpecHash,
			})
		}
	}
	return after
}

// Evaluate judges what was gathered about a batch and returns the status that remembers it.
// Before is the status of the evaluation before, of the same batch or of another one of the
// same rollout, or nil. A second evaluation within the second of the one before changes
// nothing, as status could not tell them apart. The arguments are only read, and the result
// shares nothing with them.
func Evaluate(spec *v1alpha1.Gate, before *v1alpha1.GateStatus, s Situation, g Gathered, now time.Time) *v1alpha1.GateStatus {
	after := continued(before, s)
	at := second(now)
	if after.EvaluatedAt != nil && after.EvaluatedAt.Equal(&at) {
		return after
	}
	spec = defaulted(spec)
	leaveOutAbsence(spec, after, at.Time)
	previous := after.Checks
	after.Checks = nil
	after.EvaluatedAt = &at
	after.Evaluations++
	for i := range spec.Checks {
		check := &spec.Checks[i]
		after.Checks = append(after.Checks, evaluateCheck(spec, check, find(previous, check.Name, check.Kind()), s, g[check.Name], after.Evaluations == 1, now))
	}
	for _, alert := range spec.Alerts {
		name := AlertName(alert)
		if find(after.Checks, name, v1alpha1.CheckAlert) == nil {
			status := evaluateAlert(name, find(previous, name, v1alpha1.CheckAlert), s, g[name], now)
			status.SpecHash = specHash(spec, alert)
			after.Checks = append(after.Checks, status)
		}
	}
	after.Verdict, after.Message = summary(after.Checks)
	switch {
	case after.Verdict == v1alpha1.VerdictPass:
		after.HeldSince = nil
	case after.HeldSince == nil || s.Held:
		after.HeldSince = new(at)
	}
	return after
}

// leaveOutAbsence keeps the time in which nobody looked, as when no controller ran, from
// counting as held: nothing was found because nothing was asked.
func leaveOutAbsence(spec *v1alpha1.Gate, status *v1alpha1.GateStatus, now time.Time) {
	last := status.WindowStart.Time
	if status.EvaluatedAt != nil {
		last = status.EvaluatedAt.Time
	}
	if gap := now.Sub(last); status.HeldSince != nil && gap > max(lookedFor, trustedFor*spec.Interval.Duration) {
		status.HeldSince = new(second(status.HeldSince.Add(gap)))
	}
}

func find(checks []v1alpha1.CheckStatus, name string, kind v1alpha1.CheckKind) *v1alpha1.CheckStatus {
	for i := range checks {
		if checks[i].Name == name && checks[i].Kind == kind {
			return &checks[i]
		}
	}
	return nil
}

// summary is the verdict over all checks, which is the worst, and what it rests on.
func summary(checks []v1alpha1.CheckStatus) (v1alpha1.Verdict, string) {
	if len(checks) == 0 {
		return v1alpha1.VerdictNoData, "the gate has no checks"
	}
	worst, same := 0, 1
	for i := 1; i < len(checks); i++ {
		switch a, b := rank(checks[i].Verdict), rank(checks[worst].Verdict); {
		case a > b:
			worst, same = i, 1
		case a == b:
			same++
		}
	}
	verdict := checks[worst].Verdict
	message := checks[worst].Name + ": " + checks[worst].Message
	switch others := same - 1; {
	case others == 1:
		message += fmt.Sprintf(" (and 1 more check: %s)", verdict)
	case others > 1:
		message += fmt.Sprintf(" (and %d more checks: %s)", others, verdict)
	}
	return verdict, message
}

// worstOf judges every source's evidence; the worst counts. It returns the evidence that
// the reading is of.
func worstOf(sources []Evidence, read func(Evidence) reading) (reading, Evidence) {
	if len(sources) == 0 {
		return problem("no Prometheus was asked"), Evidence{}
	}
	worst, from := read(sources[0]), sources[0]
	for _, e := range sources[1:] {
		if r := read(e); r.worse(worst) {
			worst, from = r, e
		}
	}
	return worst, from
}

// evaluateCheck judges one check; first says that nothing of this batch was judged before.
func evaluateCheck(spec *v1alpha1.Gate, check *v1alpha1.GateCheck, before *v1alpha1.CheckStatus, s Situation, sources []Evidence, first bool, now time.Time) v1alpha1.CheckStatus {
	after := v1alpha1.CheckStatus{Name: check.Name, Kind: check.Kind(), SpecHash: specHash(spec, *check)}
	var baseline *v1alpha1.RequestCounts
	if before != nil {
		baseline = before.Baseline
		if before.SpecHash != after.SpecHash {
			// What another check found, in a row or at its peak, does not count for this one.
			before = nil
		}
	}
	switch {
	case check.Proportion != nil:
		r, from := worstOf(sources, func(e Evidence) reading {
			return readProportion(spec, check.Proportion, e, s, baseline)
		})
		peak, grew := keepFresh(&r, before, first, spec.Interval.Duration, now)
		if after.Peak = peak; grew != nil {
			after.GrewAt = new(second(*grew))
		}
		if r.live != nil {
			baseline = r.live
		}
		after.Baseline = clone(baseline)
		return record(after, before, r, from)
	case check.Outlier != nil:
		r, from := worstOf(sources, func(e Evidence) reading { return readOutlier(check.Outlier, e) })
		after.Passes, after.Failures = streak(&r, before, check.Outlier.Passes, check.Outlier.Failures)
		return record(after, before, r, from)
	case check.Threshold != nil:
		r, from := worstOf(sources, func(e Evidence) reading { return readThreshold(check.Threshold, e) })
		after.Passes, after.Failures = streak(&r, before, check.Threshold.Passes, check.Threshold.Failures)
		return record(after, before, r, from)
	}
	return record(after, before, problem("the check has no kind"), Evidence{})
}

func evaluateAlert(name string, before *v1alpha1.CheckStatus, s Situation, sources []Evidence, now time.Time) v1alpha1.CheckStatus {
	r, from := worstOf(sources, func(e Evidence) reading { return readAlert(e, s, now) })
	return record(v1alpha1.CheckStatus{Name: name, Kind: v1alpha1.CheckAlert}, before, r, from)
}

// record completes the status of a check with what its reading says.
func record(after v1alpha1.CheckStatus, before *v1alpha1.CheckStatus, r reading, from Evidence) v1alpha1.CheckStatus {
	after.Verdict, after.Message = r.verdict, r.message
	after.Value, after.Limit = r.value, r.limit
	after.New, after.Old = clone(r.newer), clone(r.older)
	after.Queries = slices.Clone(from.Queries)
	after.TraceIDs = slices.Clone(from.TraceIDs[:min(len(from.TraceIDs), maxTraceIDs)])
	history := []string{r.value}
	if before != nil {
		history = slices.Concat(before.History, history)
	}
	after.History = history[max(0, len(history)-maxHistory):]
	return after
}

func clone(c *v1alpha1.RequestCounts) *v1alpha1.RequestCounts {
	if c == nil {
		return nil
	}
	return new(*c)
}
