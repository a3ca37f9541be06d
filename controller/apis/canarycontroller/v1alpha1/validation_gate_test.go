package v1alpha1

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
)

func gatedCanary() *Canary {
	c := validCanary()
	c.Spec.Gate = &Gate{
		Checks: []GateCheck{
			{Name: "error-rate", Proportion: &ProportionCheck{Preset: PresetHTTPServer, Max: "1%", Harm: "0.5%"}},
			{Name: "p99", Threshold: &ThresholdCheck{Query: `p99{ns="{{ .Namespace }}",d="{{.New}}"}[{{ .Window }}]`, Max: "0.5", Samples: "n", MinSamples: 500}},
			{Name: "ejected", Outlier: &OutlierCheck{Max: "10%"}},
			{Name: "own", Proportion: &ProportionCheck{Bad: "b", Total: "t", OldBad: "ob", OldTotal: "ot", Max: "1%"}},
		},
		Alerts: []GateAlert{{MatchLabels: map[string]string{"canary_gate": "true"}}},
	}
	SetDefaults(c)
	return c
}

func TestGateDefaults(t *testing.T) {
	g := gatedCanary().Spec.Gate
	if g.Interval.Duration != 30*time.Second || g.HoldDeadline.Duration != 30*time.Minute || g.OnFail != GateRollback || g.OnHold != GatePause ||
		g.FalseRollback != "1%" || g.FalsePromotion != "1%" || g.Checks[1].Threshold.Passes != 3 || g.Checks[2].Outlier.Failures != 3 {
		t.Errorf("defaults are %+v", g)
	}
	if _, errs := Validate(gatedCanary()); len(errs) > 0 {
		t.Error(errs)
	}
}

func TestGateNamesFieldAndRule(t *testing.T) {
	proportion := func(change func(*ProportionCheck)) func(*Canary) {
		return func(c *Canary) { change(c.Spec.Gate.Checks[0].Proportion) }
	}
	own := func(change func(*ProportionCheck)) func(*Canary) {
		return func(c *Canary) { change(c.Spec.Gate.Checks[3].Proportion) }
	}
	threshold := func(change func(*ThresholdCheck)) func(*Canary) {
		return func(c *Canary) { change(c.Spec.Gate.Checks[1].Threshold) }
	}
	gate := func(change func(*Gate)) func(*Canary) { return func(c *Canary) { change(c.Spec.Gate) } }
	prometheus := func(p PrometheusSource) func(*Canary) {
		return func(c *Canary) { c.Spec.Gate.Prometheus = &p }
	}
	for name, tc := range map[string]struct {
		change func(*Canary)
		want   string
	}{
		"normal deploy": {func(c *Canary) { c.Spec.Info.Type = NormalDeploy }, ": Forbidden: NormalDeploy has no batches to judge"},
		"nothing":       {gate(func(g *Gate) { g.Checks, g.Alerts = nil, nil }), ": Required value: needs at least one check or alert"},
		"interval":      {gate(func(g *Gate) { g.Interval = &metav1.Duration{Duration: time.Millisecond} }), `.interval: Invalid value: "1ms": must be from 1s to 1h`},
		"hold deadline": {gate(func(g *Gate) { g.HoldDeadline = &metav1.Duration{} }), `.holdDeadline: Invalid value: "0s"`},
		"on hold":       {gate(func(g *Gate) { g.OnHold = "Promote" }), `.onHold: Unsupported value: "Promote"`},
		"on fail":       {gate(func(g *Gate) { g.OnFail = "Ignore" }), `.onFail: Unsupported value: "Ignore"`},
		"level":         {gate(func(g *Gate) { g.FalseRollback = "0%" }), `.falseRollback: Invalid value: "0%": must be a percentage`},
		"other level":   {gate(func(g *Gate) { g.FalsePromotion = "50%" }), ".falsePromotion: Invalid value"},
		"too many checks": {gate(func(g *Gate) {
			g.Alerts = make([]GateAlert, 21)
			for i := range g.Alerts {
				g.Alerts[i].MatchLabels = map[string]string{"a": "b"}
			}
		}), ".alerts: Too many"},
		"name":                {gate(func(g *Gate) { g.Checks[0].Name = "Error Rate" }), `.checks[0].name: Invalid value: "Error Rate"`},
		"name twice":          {gate(func(g *Gate) { g.Checks[1].Name = "error-rate" }), `.checks[1].name: Duplicate value: "error-rate"`},
		"two kinds":           {gate(func(g *Gate) { g.Checks[0].Outlier = g.Checks[2].Outlier }), ".checks[0]: Invalid value: needs exactly one of"},
		"no kind":             {gate(func(g *Gate) { g.Checks[0].Proportion = nil }), ".checks[0]: Invalid value: needs exactly one of"},
		"max":                 {proportion(func(p *ProportionCheck) { p.Max = "1" }), `.checks[0].proportion.max: Invalid value: "1": must be a percentage`},
		"max in words":        {proportion(func(p *ProportionCheck) { p.Max = "1e1%" }), ".checks[0].proportion.max: Invalid value"},
		"harm":                {proportion(func(p *ProportionCheck) { p.Harm = "-1%" }), ".checks[0].proportion.harm: Invalid value"},
		"preset":              {proportion(func(p *ProportionCheck) { p.Preset = "linkerd" }), `.checks[0].proportion.preset: Unsupported value: "linkerd"`},
		"preset and queries":  {proportion(func(p *ProportionCheck) { p.Bad = "b" }), ".checks[0].proportion: Invalid value: needs either preset"},
		"no queries":          {proportion(func(p *ProportionCheck) { p.Preset = "" }), ".checks[0].proportion: Required value: needs either preset"},
		"half of the old":     {own(func(p *ProportionCheck) { p.OldTotal = "" }), ".checks[3].proportion: Required value: oldBad goes with oldTotal"},
		"harm of one version": {own(func(p *ProportionCheck) { p.OldBad, p.OldTotal, p.Harm = "", "", "1%" }), ".checks[3].proportion.harm: Forbidden"},
		"no old version":      {func(c *Canary) { c.Spec.Info.OldDeploymentYaml = "" }, ".checks[3].proportion.oldBad: Forbidden: there is no spec.info.oldDeploymentYaml"},
		"query field":         {own(func(p *ProportionCheck) { p.Bad = "{{ .Secret }}" }), ".checks[3].proportion.bad: Invalid value: names {{ .Secret }}; it may name .Namespace, .Canary"},
		"query action":        {threshold(func(p *ThresholdCheck) { p.Query = "{{ range .New }}x{{ end }}" }), ".checks[1].threshold.query: Invalid value: may contain {{ and }} only around a field"},
		"long query":          {threshold(func(p *ThresholdCheck) { p.Query = strings.Repeat("a", 4097) }), ".checks[1].threshold.query: Too long"},
		"no limit":            {threshold(func(p *ThresholdCheck) { p.Max = "" }), ".checks[1].threshold: Required value: needs max or min"},
		"limit":               {threshold(func(p *ThresholdCheck) { p.Max = "1/2" }), `.checks[1].threshold.max: Invalid value: "1/2"`},
		"limit without 0":     {threshold(func(p *ThresholdCheck) { p.Max = ".5" }), `.checks[1].threshold.max: Invalid value: ".5"`},
		"binary limit":        {threshold(func(p *ThresholdCheck) { p.Max = "0b1" }), `.checks[1].threshold.max: Invalid value: "0b1"`},
		"limits crossed":      {threshold(func(p *ThresholdCheck) { p.Min = "0.6" }), `.checks[1].threshold.min: Invalid value: "0.6": must not be above max`},
		"samples":             {threshold(func(p *ThresholdCheck) { p.Samples = "" }), ".checks[1].threshold.samples: Required value"},
		"negative samples":    {threshold(func(p *ThresholdCheck) { p.MinSamples = -1 }), ".checks[1].threshold.minSamples: Invalid value: -1"},
		"passes":              {threshold(func(p *ThresholdCheck) { p.Passes = 101 }), ".checks[1].threshold.passes: Invalid value: 101"},
		"outlier":             {gate(func(g *Gate) { g.Checks[2].Outlier.Max = "101%" }), `.checks[2].outlier.max: Invalid value: "101%"`},
		"alert without label": {gate(func(g *Gate) { g.Alerts[0].MatchLabels = nil }), ".alerts[0].matchLabels: Required value"},
		"long alert label":    {gate(func(g *Gate) { g.Alerts[0].MatchLabels = map[string]string{"a": strings.Repeat("x", 257)} }), ".alerts[0].matchLabels: Invalid value: names may have 128 characters, values 256"},
		"alert label":         {gate(func(g *Gate) { g.Alerts[0].MatchLabels = map[string]string{"a-b": "c"} }), `.alerts[0].matchLabels: Invalid value: "a-b"`},
		"address":             {prometheus(PrometheusSource{Address: "ftp://x"}), ".prometheus.address: Invalid value: must be an http or https URL"},
		"address with user":   {prometheus(PrometheusSource{Addresses: []string{"http://u:secret@x"}}), ".prometheus.addresses[0]: Invalid value: must be an http or https URL"},
		"address in capitals": {prometheus(PrometheusSource{Address: "HTTP://x"}), ".prometheus.address: Invalid value: must be an http or https URL"},
		"address, no host":    {prometheus(PrometheusSource{Address: "http://:9090"}), ".prometheus.address: Invalid value: must be an http or https URL"},
		"long address":        {prometheus(PrometheusSource{Address: "http://x/" + strings.Repeat("a", 504)}), ".prometheus.address: Invalid value: must be"},
		"address twice":       {prometheus(PrometheusSource{Addresses: []string{"http://x", "http://x"}}), ".prometheus.addresses[1]: Duplicate value"},
		"server name":         {prometheus(PrometheusSource{Address: "http://x", ServerName: strings.Repeat("a", 254)}), ".prometheus.serverName: Too long"},
		"timeout":             {prometheus(PrometheusSource{Timeout: &metav1.Duration{Duration: time.Hour}}), `.prometheus.timeout: Invalid value: "1h0m0s"`},
		"secret":              {prometheus(PrometheusSource{Address: "http://x", Secret: "../other"}), `.prometheus.secret: Invalid value: "../other"`},
		"secret, no address":  {prometheus(PrometheusSource{Secret: "creds"}), ".prometheus.secret: Forbidden: goes with an address"},
	} {
		t.Run(name, func(t *testing.T) {
			c := gatedCanary()
			tc.change(c)
			_, errs := Validate(c)
			if len(errs) != 1 {
				t.Fatalf("got %d errors, want 1: %v", len(errs), errs)
			}
			if got := errs[0].Error(); !strings.HasPrefix(got, "spec.gate"+tc.want) || strings.Contains(got, "u:secret") {
				t.Errorf("got  %s\nwant spec.gate%s", got, tc.want)
			}
		})
	}
}

// TestGateIsNoMatterOfARollback: a Canary that is being rolled back keeps its gate, and the
// gate is not part of the rollout's identity.
func TestGateIsNoMatterOfARollback(t *testing.T) {
	c := gatedCanary()
	c.Spec.Info.Type = CanaryRollback
	if _, errs := Validate(c); len(errs) > 0 {
		t.Error(errs)
	}
}

func TestFraction(t *testing.T) {
	for text, want := range map[string]float64{"1%": 0.01, "0.5%": 0.005, "100%": 1, "0%": 0, "12.345%": 0.12345} {
		if got, ok := Fraction(text); !ok || got != want {
			t.Errorf("%s: %v %t", text, got, ok)
		}
	}
	for _, text := range []string{"", "%", "1", "0.01", "a%", "-1%", "1e2%", "1/2%", "0x1%", "1_0%", " 1%", ".5%", "1.%", "001%", "0b1%", "1.2345678%", "100.0%"} {
		if got, ok := Fraction(text); ok {
			t.Errorf("%q is read as %v", text, got)
		}
	}
}

func TestQueries(t *testing.T) {
	values := map[string]string{"Namespace": "prod", "New": "v2", "Window": "90s"}
	got := RenderQuery(`x{ns="{{ .Namespace }}",d="{{.New}}"}[{{ .Window}}] / {{ .Batch }}`, values)
	if want := `x{ns="prod",d="v2"}[90s] / {{ .Batch }}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	rapid.Check(t, func(t *rapid.T) {
		// Whatever is accepted renders to text without an action.
		text := rapid.StringMatching(`([a-z{} .]|\{\{ ?\.[A-Z][a-z]{2,8} ?\}\}){0,12}`).Draw(t, "text")
		if CheckQuery(text) != nil {
			return
		}
		all := map[string]string{}
		for _, field := range QueryFields() {
			all[field] = "x"
		}
		if out := RenderQuery(text, all); strings.Contains(out, "{{") {
			t.Fatalf("%q renders to %q", text, out)
		}
	})
}

func FuzzCheckQuery(f *testing.F) {
	f.Add("{{ .New }}")
	f.Add("{{{{ .New }}}}")
	f.Add("{{ .New")
	f.Fuzz(func(t *testing.T, text string) {
		if CheckQuery(text) != nil {
			return
		}
		if out := RenderQuery(text, map[string]string{"Namespace": "a", "Canary": "a", "New": "a", "Old": "a", "Window": "a", "Batch": "a"}); strings.Contains(out, "{{ .") {
			t.Fatalf("%q renders to %q", text, out)
		}
	})
}
