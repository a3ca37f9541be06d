package view

import (
	"fmt"
	"strings"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
)

// sparkWidth is how many of the latest values a sparkline shows; status keeps no more.
const sparkWidth = 20

// gate draws the verdict and each check with its evidence.
func (p *page) gate(c *v1alpha1.Canary) {
	g := c.Status.Gate
	if g == nil {
		if c.Spec.Gate != nil && c.Status.Phase != v1alpha1.PhaseInvalid {
			p.line()
			p.section("Gate", dim, "nothing judged yet; it begins when a batch is available")
		}
		return
	}
	p.line()
	facts := []string{}
	if g.Batch != c.Status.CurrentBatch {
		facts = append(facts, fmt.Sprintf("of batch %d", g.Batch))
	}
	if g.EvaluatedAt != nil {
		facts = append(facts, fmt.Sprintf("looked %d %s", g.Evaluations, plural(int64(g.Evaluations), "time", "times")),
			"last "+lasting(p.Now.Sub(g.EvaluatedAt.Time))+" ago, at "+lasting(g.EvaluatedAt.Sub(g.WindowStart.Time))+" of the batch")
	}
	if g.EvaluatedAt == nil {
		facts = append(facts, "not evaluated yet")
	}
	if g.PausedAt != nil {
		facts = append(facts, "paused for a person since "+lasting(p.Now.Sub(g.PausedAt.Time)))
	}
	verdict := string(g.Verdict)
	if verdict == "" {
		verdict = "no verdict"
	}
	indent := label + columns(verdict) + 2
	said := wrap(clean(strings.Join(facts, ", "), p.ASCII), p.Width-indent)
	p.line(span{bold, pad("Gate", label)}, span{verdictColour(g.Verdict), verdict + "  "}, span{plain, strings.Join(said[:min(1, len(said))], "")})
	for _, more := range said[min(1, len(said)):] {
		p.line(span{plain, strings.Repeat(" ", indent) + more})
	}
	if p.Width >= wide {
		p.checkRows(g.Checks)
		return
	}
	p.checkBlocks(g.Checks)
}

func (p *page) verdictMark(v v1alpha1.Verdict) string {
	switch v {
	case v1alpha1.VerdictPass:
		return p.pass
	case v1alpha1.VerdictFail:
		return p.fail
	case v1alpha1.VerdictError:
		return p.wrong
	}
	return p.hold
}

// compared is the value and its limit; counts are the requests it rests on.
func compared(check *v1alpha1.CheckStatus) string {
	switch {
	case check.Value != "" && check.Limit != "":
		return check.Value + ", limit " + check.Limit
	case check.Limit != "":
		return "limit " + check.Limit
	}
	return check.Value
}

func counts(name string, r *v1alpha1.RequestCounts) string {
	if r == nil {
		return ""
	}
	return fmt.Sprintf("%s %d bad of %d", name, r.Bad, r.Total)
}

func oldCounts(check *v1alpha1.CheckStatus) string {
	if check.Old != nil && check.Old.Total > 0 || check.Baseline == nil {
		return counts("old", check.Old)
	}
	return counts("old (earlier batch)", check.Baseline)
}

// checkBlocks draws checks on a narrow page: verdict, value and trend, then the counts,
// then why.
func (p *page) checkBlocks(checks []v1alpha1.CheckStatus) {
	names, values := 0, 0
	for i := range checks {
		names = max(names, min(columns(checks[i].Name), 24))
		values = max(values, columns(compared(&checks[i])))
	}
	for i := range checks {
		check := &checks[i]
		c := verdictColour(check.Verdict)
		room := p.Width - (4 + names + 2 + 8 + values + 2)
		p.line(span{c, "  " + p.verdictMark(check.Verdict) + " "}, span{bold, pad(fit(check.Name, names, p.ellipsis), names+2)},
			span{c, pad(string(check.Verdict), 8)}, span{plain, pad(compared(check), values+2)},
			span{cyan, p.sparkline(check.History, min(sparkWidth, max(0, room)))})
		var facts []string
		for _, fact := range []string{counts("new", check.New), oldCounts(check), streak(check)} {
			if fact != "" {
				facts = append(facts, fact)
			}
		}
		p.paragraph(4, plain, strings.Join(facts, ", "))
		p.paragraph(4, dim, check.Message)
	}
}

func streak(check *v1alpha1.CheckStatus) string {
	switch {
	case check.Failures > 0:
		return fmt.Sprintf("%d failed in a row", check.Failures)
	case check.Passes > 0:
		return fmt.Sprintf("%d passed in a row", check.Passes)
	}
	return ""
}

// checkRows draws the checks as a table, each with its reason beside it.
func (p *page) checkRows(checks []v1alpha1.CheckStatus) {
	rows := make([][]string, len(checks))
	widths := make([]int, 5)
	for i := range checks {
		check := &checks[i]
		facts := counts("new", check.New)
		if old := oldCounts(check); old != "" {
			facts += ", " + old
		}
		if text := streak(check); text != "" {
			facts = strings.TrimPrefix(facts+", "+text, ", ")
		}
		rows[i] = []string{fit(check.Name, 28, p.ellipsis), string(check.Verdict), compared(check), p.sparkline(check.History, sparkWidth), facts}
		for n, text := range rows[i] {
			widths[n] = max(widths[n], columns(text))
		}
	}
	indent := 4
	for _, width := range widths {
		indent += width + 2
	}
	for i, row := range rows {
		c := verdictColour(checks[i].Verdict)
		spans := []span{{c, "  " + p.verdictMark(checks[i].Verdict) + " "}}
		for n, text := range row {
			spans = append(spans, span{[]colour{bold, c, plain, cyan, plain}[n], pad(text, widths[n]+2)})
		}
		room := p.Width - indent
		reason := wrap(clean(checks[i].Message, p.ASCII), room)
		if room < 24 {
			// Too narrow a column to read: the reason goes below.
			p.line(spans...)
			p.paragraph(4, dim, checks[i].Message)
			continue
		}
		if len(reason) == 0 {
			reason = []string{""}
		}
		p.line(append(spans, span{dim, reason[0]})...)
		for _, more := range reason[1:] {
			p.line(span{plain, strings.Repeat(" ", indent)}, span{dim, more})
		}
	}
}
