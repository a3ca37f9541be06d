package main

import (
	"slices"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/multichecker"
	"golang.org/x/tools/go/analysis/suite/vet"
)

func main() {
	multichecker.Main(slices.DeleteFunc(slices.Clone(vet.Suite), learns)...)
}

// learns reports whether an analyzer needs facts of other packages.
func learns(a *analysis.Analyzer) bool {
	return len(a.FactTypes) > 0 || slices.ContainsFunc(a.Requires, learns)
}
