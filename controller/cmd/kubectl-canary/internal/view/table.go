package view

import (
	"cmp"
	"strconv"
	"strings"
	"time"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
)

// TableOptions choose the columns of a table.
type TableOptions struct {
	// Namespaces and Message add columns.
	Namespaces, Message bool
	// NoHeaders leaves the first line out.
	NoHeaders bool
	// Now is the time that ages count from.
	Now time.Time
}

// Table lists Canaries, a line for each, as wide as they are.
func Table(list []v1alpha1.Canary, o TableOptions) string {
	var rows [][]string
	add := func(namespace string, middle []string, message string) {
		var row []string
		if o.Namespaces {
			row = append(row, namespace)
		}
		row = append(row, middle...)
		if o.Message {
			row = append(row, message)
		}
		rows = append(rows, row)
	}
	if !o.NoHeaders {
		add("NAMESPACE", []string{"NAME", "TYPE", "PHASE", "BATCH", "NEW", "OLD", "VERDICT", "AGE"}, "MESSAGE")
	}
	for i := range list {
		c := &list[i]
		add(c.Namespace, []string{
			c.Name, string(c.Spec.Info.Type), string(c.Status.Phase), c.Status.Batch,
			available(c.Status.New), available(c.Status.Old), string(c.Status.Verdict), lasting(o.Now.Sub(c.CreationTimestamp.Time)),
		}, c.Status.Message)
	}
	var widths []int
	for _, row := range rows {
		for n, text := range row {
			if n == len(widths) {
				widths = append(widths, 0)
			}
			row[n] = cmp.Or(clean(text, false), "-")
			widths[n] = max(widths[n], columns(row[n]))
		}
	}
	var out strings.Builder
	for _, row := range rows {
		var line strings.Builder
		for n, text := range row {
			line.WriteString(pad(text, widths[n]+3))
		}
		out.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	return out.String()
}

func available(w *v1alpha1.WorkloadStatus) string {
	if w == nil {
		return ""
	}
	return strconv.Itoa(int(w.AvailableReplicas)) + "/" + strconv.Itoa(int(w.Replicas))
}
