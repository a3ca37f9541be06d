package lint

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// shape is what the CRD's schema asks of a value as it is written in a file: the way a
// number is spelt, or that it is not empty, which the decoded object no longer shows.
type shape struct {
	pattern *regexp.Regexp
	rule    string
}

func mustMatch(pattern, rule string) shape { return shape{regexp.MustCompile(pattern), rule} }

var (
	percentage = mustMatch(`^[0-9]{1,2}(\.[0-9]{1,6})?%$`, `must be a percentage below 100%, such as "0.5%", with at most 6 decimals`)
	decimal    = mustMatch(`^-?[0-9]+(\.[0-9]+)?$`, `must be a decimal number such as "0.5"`)
	streak     = mustMatch(`^([1-9][0-9]?|100)$`, "must be from 1 to 100")
	act        = mustMatch(`^(Pause|Rollback)$`, "must be Pause or Rollback")
	address    = mustMatch(`^https?://[^/?#@]+(/[^?#]*)?$`, "must be an http or https URL without user, query or fragment")
)

// shapes are those of the CRD by path; [] stands for any index.
var shapes = map[string]shape{
	"spec.batches[]":                        mustMatch(`^([1-9][0-9]?|100)%$|^[1-9][0-9]{0,8}$`, "must be a number of replicas or 1% to 100%, without leading zeros"),
	"spec.deletionPolicy":                   mustMatch(`^(Delete|Orphan)$`, "must be Delete or Orphan"),
	"spec.info.totalBatches":                mustMatch(`^([1-9][0-9]{0,2}|1000)$`, "must be a whole number from 1 to 1000, without leading zeros"),
	"spec.info.currentBatch":                mustMatch(`^([0-9]|[1-9][0-9]{1,2}|1000)$`, "must be a whole number from 0 to 1000, without sign or leading zeros"),
	"spec.info.pauseType":                   mustMatch(`^(First|None|Each)$`, "must be First, None or Each"),
	"spec.gate.onHold":                      act,
	"spec.gate.onFail":                      act,
	"spec.gate.falseRollback":               percentage,
	"spec.gate.falsePromotion":              percentage,
	"spec.gate.prometheus.address":          address,
	"spec.gate.prometheus.addresses[]":      address,
	"spec.gate.prometheus.serverName":       mustMatch(`^.{0,253}$`, "must be at most 253 characters"),
	"spec.gate.checks[].proportion.preset":  mustMatch(`^(http-server|istio|envoy)$`, "must be http-server, istio or envoy"),
	"spec.gate.checks[].proportion.max":     percentage,
	"spec.gate.checks[].proportion.harm":    percentage,
	"spec.gate.checks[].threshold.max":      decimal,
	"spec.gate.checks[].threshold.min":      decimal,
	"spec.gate.checks[].threshold.passes":   streak,
	"spec.gate.checks[].threshold.failures": streak,
	"spec.gate.checks[].outlier.max":        mustMatch(`^([0-9]{1,2}(\.[0-9]{1,6})?|100)%$`, "must be from 0% to 100%, with at most 6 decimals"),
	"spec.gate.checks[].outlier.passes":     streak,
	"spec.gate.checks[].outlier.failures":   streak,
}

// maxBatchItems bounds spec.batches, as in the CRD.
const maxBatchItems = 100

var index = regexp.MustCompile(`\[[0-9]+\]`)

// shapeErrors holds the document of a Canary to the CRD's shapes.
func shapeErrors(text []byte) field.ErrorList {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var tree map[string]any
	if decoder.Decode(&tree) != nil {
		return nil
	}
	var errs field.ErrorList
	var walk func(value any, path string)
	walk = func(value any, path string) {
		switch value := value.(type) {
		case map[string]any:
			for name, item := range value {
				walk(item, join(path, name))
			}
		case []any:
			errs = append(errs, listErrors(value, path)...)
			for i, item := range value {
				walk(item, path+"["+strconv.Itoa(i)+"]")
			}
		case string, json.Number:
			text := fmt.Sprint(value)
			if s, ok := shapes[index.ReplaceAllString(path, "[]")]; ok && !s.pattern.MatchString(text) {
				errs = append(errs, &field.Error{Type: field.ErrorTypeInvalid, Field: path, BadValue: text, Detail: s.rule})
			}
		}
	}
	walk(tree["spec"], "spec")
	return errs
}

func listErrors(list []any, path string) field.ErrorList {
	var errs field.ErrorList
	switch path {
	case "spec.batches":
		if len(list) > maxBatchItems {
			errs = append(errs, &field.Error{Type: field.ErrorTypeTooMany, Field: path, BadValue: len(list), Detail: fmt.Sprintf("must have at most %d items", maxBatchItems)})
		}
	case "spec.gate.prometheus.addresses":
		seen := map[any]bool{}
		for i, item := range list {
			if text, ok := item.(string); ok {
				if seen[text] {
					errs = append(errs, &field.Error{Type: field.ErrorTypeDuplicate, Field: fmt.Sprintf("%s[%d]", path, i), BadValue: text})
				}
				seen[text] = true
			}
		}
	}
	return errs
}

// merge adds to errs those of more that are about other fields: a field that breaks a rule
// of the controller is not told again for the schema's.
func merge(errs, more field.ErrorList) field.ErrorList {
	told := map[string]bool{}
	for _, err := range errs {
		told[err.Field] = true
	}
	for _, err := range more {
		if !told[err.Field] {
			errs = append(errs, err)
		}
	}
	return errs
}
