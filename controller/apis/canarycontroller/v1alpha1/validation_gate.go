package v1alpha1

import (
	"math/big"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Limits of the lists in a gate, as in the CRD schema.
const (
	maxChecks     = 20
	maxAlerts     = 20
	maxAddresses  = 5
	maxQueryBytes = 4096
	maxURLBytes   = 512
	maxNameBytes  = 253
)

// Patterns of the CRD schema: what is read offline must not be refused by the API server.
var (
	checkName  = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`)
	percentage = regexp.MustCompile(`^([0-9]{1,2}(\.[0-9]{1,6})?|100)%$`)
	decimal    = regexp.MustCompile(`^-?[0-9]+(\.[0-9]+)?$`)
	baseURL    = regexp.MustCompile(`^https?://[^/?#@]+(/[^?#]*)?$`)
)

// Fraction reads a percentage such as 0.5% as 0.005, and reports whether it is one.
func Fraction(percent string) (float64, bool) {
	if !percentage.MatchString(percent) {
		return 0, false
	}
	r, ok := new(big.Rat).SetString(strings.TrimSuffix(percent, "%"))
	if !ok {
		return 0, false
	}
	f, _ := r.Quo(r, big.NewRat(100, 1)).Float64()
	return f, true
}

// validateGate applies the rules of spec.gate.
func validateGate(path *field.Path, c *Canary) field.ErrorList {
	gate := c.Spec.Gate
	if c.Spec.Info.Type == NormalDeploy {
		return field.ErrorList{field.Forbidden(path, "NormalDeploy has no batches to judge; use CanaryDeploy, or remove spec.gate")}
	}
	var errs field.ErrorList
	if len(gate.Checks)+len(gate.Alerts) == 0 {
		errs = append(errs, field.Required(path, "needs at least one check or alert"))
	}
	errs = append(errs, validatePrometheus(path.Child("prometheus"), gate.Prometheus)...)
	errs = append(errs, within(path.Child("interval"), gate.Interval, time.Second, time.Hour)...)
	errs = append(errs, within(path.Child("holdDeadline"), gate.HoldDeadline, time.Second, 365*24*time.Hour)...)
	for name, action := range map[string]GateAction{"onHold": gate.OnHold, "onFail": gate.OnFail} {
		if action != GatePause && action != GateRollback {
			errs = append(errs, field.NotSupported(path.Child(name), action, []GateAction{GatePause, GateRollback}))
		}
	}
	errs = append(errs, share(path.Child("falseRollback"), gate.FalseRollback, 50)...)
	errs = append(errs, share(path.Child("falsePromotion"), gate.FalsePromotion, 50)...)
	if len(gate.Checks) > maxChecks {
		errs = append(errs, field.TooMany(path.Child("checks"), len(gate.Checks), maxChecks))
	}
	names := map[string]bool{}
	for i := range gate.Checks {
		check, at := &gate.Checks[i], path.Child("checks").Index(i)
		if len(check.Name) > 63 || !checkName.MatchString(check.Name) {
			errs = append(errs, field.Invalid(at.Child("name"), check.Name, "must be at most 63 lower-case letters, digits and hyphens"))
		}
		if names[check.Name] {
			errs = append(errs, field.Duplicate(at.Child("name"), check.Name))
		}
		names[check.Name] = true
		errs = append(errs, validateCheck(at, check, c.Spec.Info.OldDeploymentYaml != "")...)
	}
	return append(errs, validateAlerts(path.Child("alerts"), gate.Alerts)...)
}

func validatePrometheus(path *field.Path, p *PrometheusSource) field.ErrorList {
	if p == nil {
		return nil
	}
	var errs field.ErrorList
	if len(p.Addresses) > maxAddresses {
		errs = append(errs, field.TooMany(path.Child("addresses"), len(p.Addresses), maxAddresses))
	}
	check := func(at *field.Path, address string) {
		u, err := url.Parse(address)
		if err != nil || u.Hostname() == "" || !baseURL.MatchString(address) || len(address) > maxURLBytes {
			// The address may hold a password: it is not repeated.
			errs = append(errs, invalid(at, "must be an http or https URL without user, query or fragment, of at most 512 bytes"))
		}
	}
	for i, address := range p.Addresses {
		at := path.Child("addresses").Index(i)
		check(at, address)
		if slices.Contains(p.Addresses[:i], address) {
			errs = append(errs, field.Duplicate(at, field.OmitValueType{}))
		}
	}
	if p.Address != "" {
		check(path.Child("address"), p.Address)
	}
	if len(p.ServerName) > maxNameBytes {
		errs = append(errs, field.TooLong(path.Child("serverName"), "", maxNameBytes))
	}
	errs = append(errs, within(path.Child("timeout"), p.Timeout, 100*time.Millisecond, time.Minute)...)
	if p.Secret != "" {
		for _, problem := range utilvalidation.IsDNS1123Subdomain(p.Secret) {
			errs = append(errs, field.Invalid(path.Child("secret"), p.Secret, problem))
		}
		if len(p.All()) == 0 {
			errs = append(errs, field.Forbidden(path.Child("secret"), "goes with an address; the controller's own Prometheus has the controller's credentials"))
		}
	}
	return errs
}

func validateCheck(path *field.Path, check *GateCheck, hasOld bool) field.ErrorList {
	kinds := 0
	var errs field.ErrorList
	if p := check.Proportion; p != nil {
		kinds++
		errs = append(errs, validateProportion(path.Child("proportion"), p, hasOld)...)
	}
	if t := check.Threshold; t != nil {
		kinds++
		errs = append(errs, validateThreshold(path.Child("threshold"), t)...)
	}
	if o := check.Outlier; o != nil {
		kinds++
		at := path.Child("outlier")
		if f, ok := Fraction(o.Max); !ok || f > 1 {
			errs = append(errs, field.Invalid(at.Child("max"), o.Max, "must be from 0% to 100%"))
		}
		errs = append(errs, streaks(at, o.Passes, o.Failures)...)
	}
	if kinds != 1 {
		errs = append(errs, invalid(path, "needs exactly one of proportion, threshold and outlier"))
	}
	return errs
}

func validateProportion(path *field.Path, p *ProportionCheck, hasOld bool) field.ErrorList {
	errs := share(path.Child("max"), p.Max, 100)
	if p.Harm != "" {
		errs = append(errs, share(path.Child("harm"), p.Harm, 100)...)
	}
	switch p.Preset {
	case "", PresetHTTPServer, PresetIstio, PresetEnvoy:
	default:
		errs = append(errs, field.NotSupported(path.Child("preset"), p.Preset, []Preset{PresetHTTPServer, PresetIstio, PresetEnvoy}))
	}
	custom := p.Bad != "" || p.Total != "" || p.OldBad != "" || p.OldTotal != ""
	switch {
	case p.Preset != "" && custom:
		return append(errs, invalid(path, "needs either preset, or bad and total"))
	case p.Preset != "":
		return errs
	case p.Bad == "" || p.Total == "":
		return append(errs, field.Required(path, "needs either preset, or bad and total"))
	case (p.OldBad == "") != (p.OldTotal == ""):
		errs = append(errs, field.Required(path, "oldBad goes with oldTotal"))
	case p.OldBad == "" && p.Harm != "":
		errs = append(errs, field.Forbidden(path.Child("harm"), "is the difference from the old version and needs oldBad and oldTotal"))
	}
	errs = append(errs, query(path.Child("bad"), p.Bad)...)
	errs = append(errs, query(path.Child("total"), p.Total)...)
	if p.OldBad != "" && p.OldTotal != "" {
		errs = append(errs, query(path.Child("oldBad"), p.OldBad)...)
		errs = append(errs, query(path.Child("oldTotal"), p.OldTotal)...)
		if !hasOld {
			errs = append(errs, field.Forbidden(path.Child("oldBad"), "there is no spec.info.oldDeploymentYaml to compare with"))
		}
	}
	return errs
}

func validateThreshold(path *field.Path, t *ThresholdCheck) field.ErrorList {
	errs := query(path.Child("query"), t.Query)
	limits := map[string]*big.Rat{}
	for name, limit := range map[string]string{"max": t.Max, "min": t.Min} {
		if limit == "" {
			continue
		}
		r, ok := new(big.Rat).SetString(limit)
		if !ok || !decimal.MatchString(limit) {
			errs = append(errs, field.Invalid(path.Child(name), limit, `must be a decimal number such as "0.5"`))
			continue
		}
		limits[name] = r
	}
	switch {
	case t.Max == "" && t.Min == "":
		errs = append(errs, field.Required(path, "needs max or min"))
	case len(limits) == 2 && limits["min"].Cmp(limits["max"]) > 0:
		errs = append(errs, field.Invalid(path.Child("min"), t.Min, "must not be above max"))
	}
	switch {
	case t.MinSamples < 0:
		errs = append(errs, field.Invalid(path.Child("minSamples"), t.MinSamples, "must not be negative"))
	case t.MinSamples > 0 && t.Samples == "":
		errs = append(errs, field.Required(path.Child("samples"), "minSamples needs the query samples"))
	}
	if t.Samples != "" {
		errs = append(errs, query(path.Child("samples"), t.Samples)...)
	}
	return append(errs, streaks(path, t.Passes, t.Failures)...)
}

func validateAlerts(path *field.Path, alerts []GateAlert) field.ErrorList {
	var errs field.ErrorList
	if len(alerts) > maxAlerts {
		errs = append(errs, field.TooMany(path, len(alerts), maxAlerts))
	}
	for i, alert := range alerts {
		at := path.Index(i).Child("matchLabels")
		if len(alert.MatchLabels) == 0 || len(alert.MatchLabels) > 10 {
			errs = append(errs, field.Required(at, "needs 1 to 10 labels of the rules"))
		}
		for name, value := range alert.MatchLabels {
			if len(name) > 128 || utf8.RuneCountInString(value) > 256 {
				errs = append(errs, invalid(at, "names may have 128 characters, values 256"))
			}
			if !labelName.MatchString(name) {
				errs = append(errs, field.Invalid(at, name, "must be a Prometheus label name"))
			}
		}
	}
	return errs
}

var labelName = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`)

func share(path *field.Path, percent string, below float64) field.ErrorList {
	f, ok := Fraction(percent)
	if !ok || f <= 0 || f*100 >= below {
		return field.ErrorList{field.Invalid(path, percent, `must be a percentage such as "0.5%", above 0% and below `+new(big.Rat).SetFloat64(below).RatString()+"%")}
	}
	return nil
}

func within(path *field.Path, d *metav1.Duration, low, high time.Duration) field.ErrorList {
	if d != nil && (d.Duration < low || d.Duration > high) {
		return field.ErrorList{field.Invalid(path, d.Duration.String(), "must be from "+low.String()+" to "+high.String())}
	}
	return nil
}

func query(path *field.Path, text string) field.ErrorList {
	if len(text) > maxQueryBytes {
		return field.ErrorList{field.TooLong(path, "", maxQueryBytes)}
	}
	if err := CheckQuery(text); err != nil {
		return field.ErrorList{invalid(path, err.Error())}
	}
	return nil
}

func streaks(path *field.Path, passes, failures int32) field.ErrorList {
	var errs field.ErrorList
	for name, n := range map[string]int32{"passes": passes, "failures": failures} {
		if n < 1 || n > 100 {
			errs = append(errs, field.Invalid(path.Child(name), n, "must be from 1 to 100"))
		}
	}
	return errs
}
