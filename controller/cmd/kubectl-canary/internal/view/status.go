package view

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
	"github.com/canarycontroller/canary-controller/controller/rollout"
)

// Status draws where a rollout stands: batches and replicas as bars, each check of the
// gate with its evidence, and what it waits for and why.
func Status(c *v1alpha1.Canary, o Options) string {
	p := newPage(o)
	p.title(c)
	if c.Status.Phase != "" {
		p.batches(c)
		p.gate(c)
	}
	p.line()
	p.waits(c)
	return p.out.String()
}

// title is the name, the phase at the right, and what is released in place of what.
func (p *page) title(c *v1alpha1.Canary) {
	s := &c.Status
	name := "Canary " + Name(c)
	phase := cmp.Or(string(s.Phase), "no status yet")
	gap := max(1, p.Width-columns(name)-columns(phase))
	p.line(span{bold, fit(name, max(0, p.Width-columns(phase)-1), p.ellipsis)}, span{plain, strings.Repeat(" ", gap)}, span{phaseColour(s.Phase), phase})

	var facts []string
	if s.New != nil {
		facts = append(facts, p.change(s))
	}
	facts = append(facts, string(c.Spec.Info.Type))
	if r := s.Rollout; r != nil {
		facts = append(facts, fmt.Sprintf("rollout %.12s", r.ID), "began "+lasting(p.Now.Sub(r.StartedAt.Time))+" ago")
		if r.FinishedAt != nil {
			facts = append(facts, "took "+lasting(r.FinishedAt.Sub(r.StartedAt.Time)))
		}
	}
	p.paragraph(0, plain, strings.Join(facts, ", "))
}

// change names the versions: old → new.
func (p *page) change(s *v1alpha1.CanaryStatus) string {
	if s.Old == nil {
		return s.New.Name
	}
	if s.Old.Name == s.New.Name {
		return s.New.Name + " in place"
	}
	return s.Old.Name + " " + p.arrow + " " + s.New.Name
}

// Name is namespace/name.
func Name(c *v1alpha1.Canary) string {
	if c.Namespace == "" {
		return c.Name
	}
	return c.Namespace + "/" + c.Name
}

func phaseColour(phase v1alpha1.Phase) colour {
	switch phase {
	case v1alpha1.PhaseCompleted:
		return green
	case v1alpha1.PhaseFailed, v1alpha1.PhaseRolledBack, v1alpha1.PhaseRollingBack, v1alpha1.PhaseInvalid:
		return red
	case v1alpha1.PhaseAwaitingApproval, v1alpha1.PhasePending:
		return yellow
	}
	return cyan
}

func verdictColour(v v1alpha1.Verdict) colour {
	switch v {
	case v1alpha1.VerdictPass:
		return green
	case v1alpha1.VerdictFail:
		return red
	case "":
		return dim
	}
	return yellow
}

// Batches returns how many batches the rollout has, 0 when that is not known yet.
func Batches(s *v1alpha1.CanaryStatus) int32 {
	_, all, _ := strings.Cut(s.Batch, "/")
	n, err := strconv.ParseInt(all, 10, 32)
	if err != nil {
		return int32(len(s.Batches))
	}
	return int32(n)
}

// Stale says that the status answers an earlier spec.
func Stale(c *v1alpha1.Canary) bool { return c.Status.ObservedGeneration < c.Generation }

// targets returns the replicas at the end of each batch: of those that began from status,
// of those to come from the spec, while status is about that spec.
func targets(c *v1alpha1.Canary) []int32 {
	s := &c.Status
	var list []int32
	for _, b := range s.Batches {
		list = append(list, b.Target)
	}
	spec := c.DeepCopy()
	v1alpha1.SetDefaults(spec)
	release, errs := v1alpha1.Validate(spec)
	if len(errs) > 0 || s.Rollout == nil {
		return list
	}
	plan := rollout.NewPlan(spec, release, s.TotalReplicas)
	if plan.ID != s.Rollout.ID || len(plan.Targets) < len(list) {
		return list
	}
	for n := len(list); n < len(plan.Targets); n++ {
		target := plan.Targets[n]
		if n > 0 {
			// An autoscaler's minimum, which only status knows, raises the later ones too.
			target = max(target, list[n-1])
		}
		list = append(list, target)
	}
	return list
}

func (p *page) batches(c *v1alpha1.Canary) {
	s := &c.Status
	list := targets(c)
	if s.TotalReplicas > 0 && len(list) > 0 {
		p.line()
		var suffixes [3]string
		suffixes[0] = fmt.Sprintf("  %d of %d replicas", list[min(max(0, int(s.CurrentBatch)-1), len(list)-1)], s.TotalReplicas)
		for i, w := range []*v1alpha1.WorkloadStatus{s.New, s.Old} {
			if w != nil {
				suffixes[i+1] = fmt.Sprintf("  %d of %d available", w.AvailableReplicas, w.Replicas)
				if p.Width >= wide {
					suffixes[i+1] += "  " + fit(w.Name, 40, p.ellipsis)
				}
			}
		}
		widest := 0
		for _, suffix := range suffixes {
			widest = max(widest, columns(suffix))
		}
		width := max(4, p.Width-label-widest)
		row := func(name string, bar []span, suffix string) {
			p.line(append(append([]span{{bold, pad(name, label)}}, bar...), span{plain, suffix})...)
		}
		row("Batch "+s.Batch, p.batchBar(c, list, width), suffixes[0])
		for i, w := range []*v1alpha1.WorkloadStatus{s.New, s.Old} {
			if w != nil {
				row([]string{"New", "Old"}[i], p.bar(w.AvailableReplicas, w.Replicas, s.TotalReplicas, width), suffixes[i+1])
			}
		}
	}
	p.batchLines(s, list)
	for _, bad := range []metav1.Condition{
		{Type: v1alpha1.ConditionAvailable, Status: metav1.ConditionFalse},
		{Type: v1alpha1.ConditionStalled, Status: metav1.ConditionTrue},
	} {
		if is := meta.FindStatusCondition(s.Conditions, bad.Type); is != nil && is.Status == bad.Status && is.Message != s.Message {
			p.section(bad.Type, red, is.Message)
		}
	}
}

// batchLines tells the course of each batch; of many, of those around the current one.
func (p *page) batchLines(s *v1alpha1.CanaryStatus, list []int32) {
	const most = 8
	if len(list) == 0 {
		return
	}
	p.line()
	first, end := 0, len(list)
	if len(list) > most {
		first = min(max(0, int(s.CurrentBatch)-4), len(list)-most)
		end = first + most
	}
	if first > 0 {
		p.line(span{dim, fmt.Sprintf("      %d earlier %s", first, plural(int64(first), "batch", "batches"))})
	}
	heads, courses, headWidth, courseWidth := make([]string, end), make([]string, end), 0, 0
	for n := first; n < end; n++ {
		heads[n] = fmt.Sprintf("%3d to %d %s", n+1, list[n], plural(int64(list[n]), "replica", "replicas"))
		if n < len(s.Batches) {
			courses[n] = p.course(s.Batches[n], s.Rollout)
		}
		headWidth, courseWidth = max(headWidth, len(heads[n])), max(courseWidth, len(courses[n]))
	}
	for n := first; n < end; n++ {
		head := pad(heads[n], headWidth+2)
		if n >= len(s.Batches) {
			p.line(span{dim, "  " + head})
			continue
		}
		b := s.Batches[n]
		mark, c := " ", plain
		if b.FinishedAt != nil {
			mark, c = p.pass, green
		} else if n+1 == int(s.CurrentBatch) && (s.Rollout == nil || s.Rollout.Outcome == "") {
			mark, c = ">", cyan
		}
		p.line(span{c, mark + " "}, span{plain, head}, span{plain, pad(courses[n], courseWidth+2)}, span{verdictColour(b.Verdict), string(b.Verdict)})
	}
	if end < len(list) {
		p.line(span{dim, fmt.Sprintf("      %d more %s to come", len(list)-end, plural(int64(len(list)-end), "batch", "batches"))})
	}
}

// course is how a batch went; r is the rollout, whose end ends the batch too.
func (p *page) course(b v1alpha1.BatchStatus, r *v1alpha1.RolloutStatus) string {
	held := time.Duration(b.PausedSeconds) * time.Second
	if b.AvailableAt == nil {
		text := "began " + lasting(p.Now.Sub(b.StartedAt.Time)) + " ago"
		if b.PausedAt != nil {
			text += ", paused for " + lasting(p.Now.Sub(b.PausedAt.Time))
		}
		return text
	}
	text := "available after " + lasting(b.AvailableAt.Sub(b.StartedAt.Time)-held)
	switch {
	case b.FinishedAt != nil:
		return text + ", finished after " + lasting(b.FinishedAt.Sub(b.StartedAt.Time))
	case r != nil && r.RollbackStartedAt != nil:
		return text + ", given up after " + lasting(r.RollbackStartedAt.Sub(b.StartedAt.Time))
	case b.BrokenAt != nil:
		return text + ", broken since " + lasting(p.Now.Sub(b.BrokenAt.Time))
	case r != nil && r.FinishedAt != nil:
		return text
	}
	return text + ", for " + lasting(p.Now.Sub(b.AvailableAt.Time))
}
