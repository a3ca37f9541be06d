package view

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
)

// Explanation is why a rollout stands where it does.
type Explanation struct {
	Namespace string         `json:"namespace,omitempty"`
	Name      string         `json:"name"`
	Phase     v1alpha1.Phase `json:"phase,omitempty"`
	// Message is the rollout's own.
	Message   string                  `json:"message,omitempty"`
	Rollout   *v1alpha1.RolloutStatus `json:"rollout,omitempty"`
	WaitsFor  string                  `json:"waitsFor"`
	Next      string                  `json:"next,omitempty"`
	TraceURL  string                  `json:"traceURL,omitempty"`
	Batches   []v1alpha1.BatchStatus  `json:"batches,omitempty"`
	Decisions []v1alpha1.GateDecision `json:"decisions,omitempty"`
	Checks    []v1alpha1.CheckStatus  `json:"checks,omitempty"`
	// FailingRequests are traces of bad requests that decisions and checks rest on: ids, or links when
	// the address of Jaeger is known.
	FailingRequests []string `json:"failingRequests,omitempty"`

	status *v1alpha1.CanaryStatus
}

// Explain collects why a rollout stands where it does. jaeger is the base URL of Jaeger's
// pages, or empty. The result shares memory with c.
func Explain(c *v1alpha1.Canary, jaeger string, now time.Time) Explanation {
	s := &c.Status
	e := Explanation{
		Namespace: c.Namespace, Name: c.Name, Phase: s.Phase, Message: s.Message, Rollout: s.Rollout, Batches: s.Batches,
		status: s,
	}
	e.WaitsFor, _, e.Next = Waiting(c, now)
	link := func(id string) string {
		if jaeger == "" {
			return id
		}
		return strings.TrimRight(jaeger, "/") + "/trace/" + id
	}
	if s.Rollout != nil && s.Rollout.TraceID != "" && jaeger != "" {
		e.TraceURL = link(s.Rollout.TraceID)
	}
	if g := s.Gate; g != nil {
		e.Decisions, e.Checks = g.Decisions, g.Checks
		var ids []string
		for _, decision := range g.Decisions {
			ids = append(ids, decision.TraceIDs...)
		}
		for _, check := range g.Checks {
			ids = append(ids, check.TraceIDs...)
		}
		for _, id := range ids {
			if text := link(id); !slices.Contains(e.FailingRequests, text) {
				e.FailingRequests = append(e.FailingRequests, text)
			}
		}
	}
	return e
}

// moment is a line of the story of a rollout.
type moment struct {
	at    metav1.Time
	batch int32
	// rank orders what happened to one batch in one second.
	rank   int
	colour colour
	text   string
}

// story returns what happened, in order.
func (p *page) story(e *Explanation) []moment {
	var list []moment
	add := func(at *metav1.Time, batch int32, rank int, c colour, format string, args ...any) {
		if at != nil {
			list = append(list, moment{*at, batch, rank, c, fmt.Sprintf(format, args...)})
		}
	}
	const end = 1 << 30
	if r := e.Rollout; r != nil {
		what := ""
		if e.status.New != nil {
			what = ": " + p.change(e.status)
		}
		add(&r.StartedAt, 0, 0, plain, "rollout began%s", what)
		if first := r.EndedFirst; first != nil {
			add(&first.FinishedAt, end, 0, phaseColour(v1alpha1.Phase(first.Outcome)), "%s, after %s", first.Outcome, lasting(first.FinishedAt.Sub(r.StartedAt.Time)))
		}
		add(r.RollbackStartedAt, end, 0, red, "rollback began: %s", r.RollbackReason)
		if r.Outcome != "" {
			add(r.FinishedAt, end, 1, phaseColour(v1alpha1.Phase(r.Outcome)), "%s, after %s", r.Outcome, lasting(r.FinishedAt.Sub(r.StartedAt.Time)))
		}
	}
	for n := range e.Batches {
		b, number := &e.Batches[n], int32(n+1)
		of := ""
		if all := Batches(e.status); all > 0 {
			of = fmt.Sprintf(" of %d", all)
		}
		add(&b.StartedAt, number, 0, plain, "batch %d%s began: to %d of %d replicas", number, of, b.Target, e.status.TotalReplicas)
		if b.AvailableAt != nil {
			held := ""
			if b.PausedSeconds > 0 {
				held = ", " + lasting(time.Duration(b.PausedSeconds)*time.Second) + " of it paused"
			}
			add(b.AvailableAt, number, 1, plain, "batch %d available after %s%s", number, lasting(b.AvailableAt.Sub(b.StartedAt.Time)), held)
		}
		if b.FinishedAt != nil {
			add(b.FinishedAt, number, 3, green, "batch %d finished after %s", number, lasting(b.FinishedAt.Sub(b.StartedAt.Time)))
		}
	}
	for i := range e.Decisions {
		d := &e.Decisions[i]
		add(&d.Time, d.Batch, 2, verdictColour(d.Verdict), "gate, batch %d: %s (%s). %s", d.Batch, d.Action, d.Verdict, d.Evidence)
	}
	slices.SortStableFunc(list, func(a, b moment) int {
		if order := a.at.Compare(b.at.Time); order != 0 {
			return order
		}
		if a.batch != b.batch {
			return int(a.batch - b.batch)
		}
		return a.rank - b.rank
	})
	return list
}

// Why tells an explanation: what happened in order, with the evidence of each decision,
// and where it stands now.
func Why(e Explanation, o Options) string {
	p := newPage(o)
	name := e.Name
	if e.Namespace != "" {
		name = e.Namespace + "/" + e.Name
	}
	p.line(span{bold, "Canary " + name + "  "}, span{phaseColour(e.Phase), string(e.Phase)})
	p.paragraph(0, plain, e.Message)
	if e.Rollout == nil {
		p.line()
		p.section("Waits for", yellow, e.WaitsFor)
		if e.Next != "" {
			p.section("Then", plain, e.Next)
		}
		return p.out.String()
	}
	p.line()
	p.line(span{bold, "Rollout " + e.Rollout.ID})
	day := ""
	for _, m := range p.story(&e) {
		at := m.at.UTC()
		if today := at.Format(time.DateOnly); today != day {
			day = today
			p.line(span{dim, "  " + day + ", UTC"})
		}
		for i, part := range wrap(clean(m.text, p.ASCII), p.Width-12) {
			clock := at.Format(time.TimeOnly)
			if i > 0 {
				clock = ""
			}
			p.line(span{dim, "  " + pad(clock, 10)}, span{m.colour, part})
		}
	}
	if len(e.Decisions) == 0 {
		p.paragraph(12, dim, "the gate has decided nothing")
	}
	p.line()
	p.section("Waits for", yellow, e.WaitsFor)
	if e.Next != "" {
		p.section("Then", plain, e.Next)
	}
	switch {
	case e.TraceURL != "":
		p.address("Trace", e.TraceURL)
	case e.Rollout.TraceID != "":
		p.address("Trace", e.Rollout.TraceID)
	}
	for i, request := range e.FailingRequests {
		p.address(map[bool]string{true: "Failing", false: ""}[i == 0], request)
	}
	return p.out.String()
}

// address writes a link whole where it fits, on lines of its own where it does not.
func (p *page) address(name, text string) {
	text = clean(text, p.ASCII)
	if columns(text) > p.Width-label {
		p.line(span{bold, name})
		for _, part := range wrap(text, p.Width) {
			p.line(span{cyan, part})
		}
		return
	}
	p.line(span{bold, pad(name, label)}, span{cyan, text})
}
