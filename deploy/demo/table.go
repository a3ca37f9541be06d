package main

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"
)

// outcome is a row of the table at the end: what became of a release, and why.
type outcome struct {
	release, decision, evidence string
	took                        time.Duration
	users                       tally
	// traceID is the trace of the rollout.
	traceID string
}

// writeTable writes the releases in columns, each line after the indent.
func writeTable(out io.Writer, indent string, rows []outcome) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "%sRELEASE\tDECISION\tEVIDENCE\tTIME\tFAILED FOR USERS\n", indent)
	for _, r := range rows {
		fmt.Fprintf(w, "%s%s\t%s\t%s\t%s\t%s\n", indent, r.release, r.decision, r.evidence, r.took.Round(time.Second), r.users)
	}
	return w.Flush()
}
