package v1alpha1

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// QueryFields are what a query template may name, as {{ .Name }}. There is nothing else in
// it: no functions, no conditions, no loops.
func QueryFields() []string {
	return []string{"Namespace", "Canary", "New", "Old", "Window", "Batch"}
}

var action = regexp.MustCompile(`\{\{\s*\.([A-Za-z]+)\s*\}\}`)

// CheckQuery says what is wrong with a query template, or nil.
func CheckQuery(text string) error {
	if strings.TrimSpace(text) == "" {
		return fmt.Errorf("must not be empty")
	}
	for _, match := range action.FindAllStringSubmatch(text, -1) {
		if !slices.Contains(QueryFields(), match[1]) {
			return fmt.Errorf("names {{ .%s }}; it may name %s", match[1], "."+strings.Join(QueryFields(), ", ."))
		}
	}
	if rest := action.ReplaceAllString(text, ""); strings.Contains(rest, "{{") || strings.Contains(rest, "}}") {
		return fmt.Errorf("may contain {{ and }} only around a field such as {{ .Window }}")
	}
	return nil
}

// RenderQuery fills a template that CheckQuery accepts. Values are names and durations,
// which hold no character that ends a PromQL string. A field without a value stays as it is.
func RenderQuery(text string, values map[string]string) string {
	return action.ReplaceAllStringFunc(text, func(found string) string {
		if value, ok := values[action.FindStringSubmatch(found)[1]]; ok {
			return value
		}
		return found
	})
}
