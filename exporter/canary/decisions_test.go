package canary

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
)

func TestGateDecisionsCountOnce(t *testing.T) {
	judged := func(second int64, batch int32) *v1alpha1.CanaryStatus {
		return &v1alpha1.CanaryStatus{Gate: &v1alpha1.GateStatus{
			Batch: batch, EvaluatedAt: &metav1.Time{Time: time.Unix(second, 0)},
			Checks: []v1alpha1.CheckStatus{{Name: "errors"}, {Name: "p99"}},
		}}
	}
	for name, tc := range map[string]struct {
		before, after *v1alpha1.CanaryStatus
		want          int
	}{
		"no gate":               {nil, &v1alpha1.CanaryStatus{}, 0},
		"not evaluated":         {nil, &v1alpha1.CanaryStatus{Gate: &v1alpha1.GateStatus{Checks: make([]v1alpha1.CheckStatus, 2)}}, 0},
		"first evaluation":      {&v1alpha1.CanaryStatus{}, judged(1, 1), 2},
		"the same":              {judged(1, 1), judged(1, 1), 0},
		"the next":              {judged(1, 1), judged(2, 1), 2},
		"next batch, same time": {judged(1, 1), judged(1, 2), 2},
	} {
		if got := len(GateDecisions(tc.before, tc.after)); got != tc.want {
			t.Errorf("%s: %d, want %d", name, got, tc.want)
		}
	}
}
