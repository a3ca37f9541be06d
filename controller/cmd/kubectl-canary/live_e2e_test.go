//go:build e2e

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
)

// terminal is one in which the live view runs.
type terminal interface {
	// lines of the screen, without blanks at their ends and without empty ones at the end.
	lines() []string
	resize(width, height int)
	interrupt()
	// ended returns the exit code, and whether the cursor is shown again.
	ended() (code int, cursor bool)
}

// liveStory follows a rollout on a terminal that begins with the given width: every state
// replaces the one before in place, a resize fills the new width, Ctrl-C ends it.
func liveStory(t *testing.T, s *space, width int, open func(args ...string) terminal) {
	s.create()
	s.status(at(v1alpha1.PhaseAnalyzing, 2, "batch 2 is available and held: "+few), judged(v1alpha1.VerdictNoData, "0.13%", few, 0, 12, "0.4%", "0.2%", "0.13%"))
	term := open("-n", s.name, "status", "reviews", "-w")
	s.screen(term, width, []string{"Canary " + s.name + "/reviews", "Batch 2/4", "█▅▃", few}, []string{"\x1b", "batch 2: 2 of 3"})

	s.status(at(v1alpha1.PhaseRollingBack, 2, "rolling back: 6 of 8 replicas of reviews-v1 are available"), judged(v1alpha1.VerdictFail, "5.1%", "worse than the limit", 61, 1203, "4%", "5.1%"), turned("the gate failed batch 2"))
	s.screen(term, width, []string{"RollingBack", "✘ error-rate", "worse than the limit"}, []string{"Analyzing", few})

	other := 240 - width
	term.resize(other, 50)
	s.screen(term, other, []string{"RollingBack", "worse than the limit"}, []string{"Analyzing"})
	// What is shorter leaves nothing of what was longer behind.
	s.status(at(v1alpha1.PhaseRolledBack, 2, "reviews-v1 is back"), func(c *v1alpha1.Canary) { c.Status.Gate = nil }, turned("x"), ended(v1alpha1.OutcomeRolledBack))
	s.screen(term, other, []string{"RolledBack", "nothing: it is rolled back"}, []string{"RollingBack", "error-rate"})

	// A terminal that is too low shows what there is room for, the beginning of it.
	term.resize(other, 8)
	s.screen(term, 0, []string{"RolledBack", "more lines, the terminal is too low"}, nil)

	term.interrupt()
	if code, cursor := term.ended(); code != 130 || !cursor {
		t.Errorf("ended with %d, cursor shown %v", code, cursor)
	}
}

var ages = regexp.MustCompile(`[0-9]+[smhd]([0-9]+[smhd])?`)

// screen waits until the terminal shows all of the wanted text and none of the unwanted,
// and then, with a width, holds that the screen is what the plain view is at that width,
// but for ages, once and nothing else.
func (s *space) screen(term terminal, width int, wanted, unwanted []string) {
	s.Helper()
	var lines []string
	if err := poll(func() error {
		lines = term.lines()
		text := strings.Join(lines, "\n")
		for _, part := range wanted {
			if !strings.Contains(text, part) {
				return fmt.Errorf("%q is not there yet", part)
			}
		}
		for _, part := range unwanted {
			if strings.Contains(text, part) {
				return fmt.Errorf("%q is still there", part)
			}
		}
		if width == 0 {
			return nil
		}
		plain := run(s.Context(), []string{fmt.Sprintf("COLUMNS=%d", width)}, "-n", s.name, "status", "reviews")
		strip := func(text string) string {
			text = ages.ReplaceAllString(text, "AGE")
			return strings.Join(strings.Fields(text), " ")
		}
		if strip(text) != strip(plain.out) {
			return fmt.Errorf("the plain view is\n%s", plain)
		}
		longest := 0
		for _, line := range lines {
			longest = max(longest, utf8.RuneCountInString(line))
		}
		if longest != width {
			return fmt.Errorf("the longest line takes %d columns of %d", longest, width)
		}
		return nil
	}); err != nil {
		s.Fatalf("%v; the screen is\n%s", err, strings.Join(lines, "\n"))
	}
}

func TestLiveViewInTmux(t *testing.T) {
	if _, err := exec.LookPath("tmux"); err != nil {
		t.Skip("there is no tmux; apt-get install tmux")
	}
	for _, width := range []int{80, 160} {
		t.Run(fmt.Sprint(width), func(t *testing.T) {
			t.Parallel()
			s := newSpace(t)
			liveStory(t, s, width, func(args ...string) terminal { return openTmux(t, width, 50, args...) })
		})
	}
}

// tmux is a terminal of a tmux server of its own.
type tmux struct {
	*testing.T
	socket, code string
}

func openTmux(t *testing.T, width, height int, args ...string) terminal {
	t.Helper()
	dir := t.TempDir()
	term := &tmux{T: t, socket: filepath.Join(dir, "tmux"), code: filepath.Join(dir, "code")}
	var script strings.Builder
	script.WriteString("trap : INT\n")
	for _, word := range append([]string{env.binary}, args...) {
		fmt.Fprintf(&script, "'%s' ", word)
	}
	fmt.Fprintf(&script, "\necho $? >'%s'\nexec sleep 600\n", term.code)
	file := filepath.Join(dir, "script")
	if err := os.WriteFile(file, []byte(script.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	term.tmux("-u", "-f", "/dev/null", "new-session", "-d", "-x", fmt.Sprint(width), "-y", fmt.Sprint(height), "sh '"+file+"'")
	t.Cleanup(func() {
		if out, err := exec.Command("tmux", "-S", term.socket, "kill-server").CombinedOutput(); err != nil {
			t.Logf("ending tmux: %v %s", err, out)
		}
	})
	term.tmux("set-option", "-g", "status", "off")
	term.resize(width, height)
	return term
}

func (m *tmux) tmux(args ...string) string {
	m.Helper()
	cmd := exec.Command("tmux", append([]string{"-S", m.socket}, args...)...)
	cmd.Env = environ()
	out, err := cmd.CombinedOutput()
	if err != nil {
		m.Fatalf("tmux %v: %v\n%s", args, err, out)
	}
	return string(out)
}

func (m *tmux) lines() []string { return trimmed(strings.Split(m.tmux("capture-pane", "-p"), "\n")) }

func (m *tmux) resize(width, height int) {
	m.tmux("resize-window", "-x", fmt.Sprint(width), "-y", fmt.Sprint(height))
}

func (m *tmux) interrupt() { m.tmux("send-keys", "C-c") }

func (m *tmux) ended() (code int, cursor bool) {
	code = -1
	if err := poll(func() error {
		text, err := os.ReadFile(m.code)
		if err == nil {
			_, err = fmt.Sscan(string(text), &code)
		}
		return err
	}); err != nil {
		m.Error(err)
	}
	return code, strings.TrimSpace(m.tmux("display-message", "-p", "#{cursor_flag}")) == "1"
}

// trimmed takes away the blanks at the ends of lines and the empty lines at the end.
func trimmed(lines []string) []string {
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	for len(lines) > 0 && lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	return slices.Clone(lines)
}
