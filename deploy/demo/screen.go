package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
)

// screen is where the demo tells what happens. It only ever appends, so that a
// log of it reads as well as a terminal.
type screen struct {
	mu    sync.Mutex
	out   io.Writer
	now   func() time.Time
	color bool
	step  int
}

func newScreen(out io.Writer, now func() time.Time) *screen {
	s := &screen{out: out, now: now}
	if file, ok := out.(*os.File); ok && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" {
		info, err := file.Stat()
		s.color = err == nil && info.Mode()&os.ModeCharDevice != 0
	}
	return s
}

// The terminal's colours.
const (
	bold   = "1"
	dim    = "2"
	green  = "32"
	yellow = "33"
	cyan   = "36"
)

func (s *screen) paint(color, text string) string {
	if !s.color || text == "" {
		return text
	}
	return "\x1b[" + color + "m" + text + "\x1b[0m"
}

func (s *screen) print(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintf(s.out, format, args...)
}

// begin announces a step.
func (s *screen) begin(title string) {
	s.step++
	s.print("\n%s\n", s.paint(bold, fmt.Sprintf("%d. %s", s.step, title)))
}

// note says something about the step.
func (s *screen) note(format string, args ...any) {
	s.print("   %s\n", fmt.Sprintf(format, args...))
}

// command shows what a person would type.
func (s *screen) command(args ...string) {
	s.print("   %s\n", s.paint(cyan, "$ "+shell(args)))
}

// saw confirms what the step was to reach.
func (s *screen) saw(format string, args ...any) {
	s.print("   %s %s\n", s.paint(green, "ok"), fmt.Sprintf(format, args...))
}

// shell writes words as a shell reads them.
func shell(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = w
		if w == "" || strings.ContainsAny(w, " \t\n'\"\\$`{}[]()*?<>|&;#~!") {
			quoted[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
	}
	return strings.Join(quoted, " ")
}

// row shows a Canary's status in one line.
func (s *screen) row(c *v1alpha1.Canary) {
	color := dim
	switch c.Status.Phase {
	case v1alpha1.PhaseAwaitingApproval:
		color = yellow
	case v1alpha1.PhaseCompleted, v1alpha1.PhaseRolledBack:
		color = green
	}
	s.print("   %s  %s  %s\n", s.paint(dim, s.now().Format("15:04:05")), row(c), s.paint(color, string(c.Status.Phase)))
}

// decision shows what the gate decided, and on which evidence.
func (s *screen) decision(d v1alpha1.GateDecision) {
	s.because(fmt.Sprintf("gate, batch %d: %s, %s", d.Batch, d.Verdict, strings.ToLower(d.Action)), d.Evidence)
}

// because says below a row what it rests on.
func (s *screen) because(what, why string) {
	indent := strings.Repeat(" ", len("   15:04:05  "))
	for _, line := range wrap(what+": "+why, textWidth-len(indent)) {
		s.print("%s%s\n", indent, line)
	}
}

// textWidth is where long sentences are broken.
const textWidth = 110

// wrap breaks a text between words into lines of at most width runes, as far as words allow.
func wrap(text string, width int) []string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width {
			lines = append(lines, line)
			line = ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(lines, line)
}

// row is a Canary's status without the time and the phase.
func row(c *v1alpha1.Canary) string {
	batch := c.Status.Batch
	if batch == "" {
		batch = "-"
	}
	return fmt.Sprintf("batch %-4s new %s  old %s", batch,
		bar(c.Status.New, c.Status.TotalReplicas), bar(c.Status.Old, c.Status.TotalReplicas))
}

// bar draws a Deployment's replicas: available, asked for but not available yet,
// and the rest of the total.
func bar(w *v1alpha1.WorkloadStatus, total int32) string {
	var available, wanted int32
	if w != nil {
		available, wanted = w.AvailableReplicas, w.Replicas
	}
	width := max(total, available, wanted)
	number := fmt.Sprintf("%d/%d", available, wanted)
	if width > maxBar {
		return number
	}
	return strings.Repeat("■", int(available)) + strings.Repeat("▫", int(max(wanted-available, 0))) +
		strings.Repeat("·", int(width-max(available, wanted))) + " " + number
}

// maxBar is how many replicas are drawn one by one.
const maxBar = 20
