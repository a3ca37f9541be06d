//go:build e2e

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/creack/pty"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
)

func TestLiveViewOnAPseudoTerminal(t *testing.T) {
	for _, width := range []int{80, 160} {
		t.Run(fmt.Sprint(width), func(t *testing.T) {
			t.Parallel()
			s := newSpace(t)
			liveStory(t, s, width, func(args ...string) terminal { return openPTY(t, width, 50, nil, args...) })
		})
	}
}

// TestColours holds that a terminal gets colours, and none with NO_COLOR.
func TestColours(t *testing.T) {
	t.Parallel()
	for name, extra := range map[string][]string{"with": nil, "without": {"NO_COLOR=1"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSpace(t)
			s.create()
			s.status(at(v1alpha1.PhaseAwaitingApproval, 1, available))
			term := openPTY(t, 80, 50, extra, "-n", s.name, "status", "reviews", "-w")
			s.screen(term, 80, []string{"AwaitingApproval"}, nil)
			term.interrupt()
			term.ended()
			if got := term.(*ptyTerminal).coloured(); got != (extra == nil) {
				t.Errorf("coloured %v", got)
			}
		})
	}
}

// TestConfirm answers the question of --without-evidence on a terminal.
func TestConfirm(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]int{"yes": 0, "no": 1, "": 1} {
		t.Run("answer "+answer, func(t *testing.T) {
			t.Parallel()
			s := newSpace(t)
			s.create()
			c := s.status(at(v1alpha1.PhaseAnalyzing, 1, "held"), judged(v1alpha1.VerdictNoData, "0%", few, 0, 12, "0%"))
			term := openPTY(t, 160, 50, nil, "-n", s.name, "approve", "reviews", "--without-evidence").(*ptyTerminal)
			s.screen(term, 0, []string{"batch 1. The gate says:", "NoData: error-rate is NoData: " + few, "Let it through without evidence? Type yes:"}, nil)
			if _, err := term.file.WriteString(answer + "\n"); err != nil {
				t.Fatal(err)
			}
			code, _ := term.ended()
			promoted := s.get().Annotations[v1alpha1.AnnotationPromote] == c.Status.Rollout.ID+"/1"
			if code != want || promoted != (want == 0) {
				t.Errorf("exit code %d, want %d; promoted %v\n%s", code, want, promoted, strings.Join(term.lines(), "\n"))
			}
		})
	}
}

// ptyTerminal is a pseudo terminal with the few functions of a real one that the live view
// uses. Any other control sequence fails the test.
type ptyTerminal struct {
	*testing.T
	file *os.File
	cmd  *exec.Cmd
	done sync.WaitGroup

	mu            sync.Mutex
	width, height int
	cells         [][]rune
	row, column   int
	hidden        bool
	colours       bool
	pending       string
}

func openPTY(t *testing.T, width, height int, extra []string, args ...string) terminal {
	t.Helper()
	term := &ptyTerminal{T: t, width: width, height: height, cmd: exec.Command(env.binary, args...)}
	term.cmd.Env = environ(extra...)
	var err error
	if term.file, err = pty.StartWithSize(term.cmd, &pty.Winsize{Cols: uint16(width), Rows: uint16(height)}); err != nil {
		t.Fatal(err)
	}
	term.clear(0)
	term.done.Go(func() {
		buffer := make([]byte, 4096)
		for {
			n, err := term.file.Read(buffer)
			term.mu.Lock()
			term.write(string(buffer[:n]))
			term.mu.Unlock()
			if err != nil {
				return
			}
		}
	})
	t.Cleanup(func() {
		_ = term.cmd.Process.Kill()
		term.done.Wait()
		term.file.Close()
	})
	return term
}

func (p *ptyTerminal) lines() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	lines := make([]string, len(p.cells))
	for i, row := range p.cells {
		lines[i] = string(row)
	}
	return trimmed(lines)
}

func (p *ptyTerminal) coloured() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.colours
}

// resize throws the screen away: where a terminal puts the lines is its own affair.
func (p *ptyTerminal) resize(width, height int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.width, p.height = width, height
	p.cells, p.row, p.column = nil, 0, 0
	p.clear(0)
	if err := pty.Setsize(p.file, &pty.Winsize{Cols: uint16(width), Rows: uint16(height)}); err != nil {
		p.Error(err)
	}
}

func (p *ptyTerminal) interrupt() {
	if _, err := p.file.WriteString("\x03"); err != nil {
		p.Error(err)
	}
}

func (p *ptyTerminal) ended() (code int, cursor bool) {
	var exit *exec.ExitError
	if err := p.cmd.Wait(); errors.As(err, &exit) {
		code = exit.ExitCode()
	} else if err != nil {
		p.Error(err)
	}
	p.done.Wait()
	return code, !p.hidden
}

// clear empties the screen from a row on.
func (p *ptyTerminal) clear(from int) {
	for len(p.cells) < p.height {
		p.cells = append(p.cells, nil)
	}
	for row := from; row < len(p.cells); row++ {
		p.cells[row] = []rune(strings.Repeat(" ", p.width))
	}
}

// write obeys what a program writes to its terminal.
func (p *ptyTerminal) write(text string) {
	text = p.pending + text
	p.pending = ""
	// A character that the read has cut in two comes whole with the next one.
	for cut := 1; cut < utf8.UTFMax && cut <= len(text); cut++ {
		if last := len(text) - cut; utf8.RuneStart(text[last]) {
			if !utf8.FullRuneInString(text[last:]) {
				text, p.pending = text[:last], text[last:]
			}
			break
		}
	}
	runes := []rune(text)
	for i := 0; i < len(runes); i++ {
		switch r := runes[i]; r {
		case '\r':
			p.column = 0
		case '\n':
			if p.row++; p.row == p.height {
				p.row--
				p.cells = append(p.cells[1:], []rune(strings.Repeat(" ", p.width)))
			}
		case '\x1b':
			end := i + 2
			for end < len(runes) && (runes[end] < '@' || runes[end] > '~') {
				end++
			}
			if end >= len(runes) {
				p.pending = string(runes[i:]) + p.pending
				return
			}
			p.obey(string(runes[i+1 : end+1]))
			i = end
		default:
			if r < ' ' {
				p.Errorf("control character %q", r)
			}
			if p.column == p.width {
				p.Errorf("a line of more than %d columns", p.width)
				return
			}
			p.cells[p.row][p.column] = r
			p.column++
		}
	}
}

func (p *ptyTerminal) obey(sequence string) {
	final, number := sequence[len(sequence)-1], 0
	if digits := strings.Trim(sequence[1:len(sequence)-1], "?"); digits != "" {
		number, _ = strconv.Atoi(digits)
	}
	switch {
	case sequence == "[?25l":
		p.hidden = true
	case sequence == "[?25h":
		p.hidden = false
	case sequence == "[2J":
		p.clear(0)
	case sequence == "[J":
		copy(p.cells[p.row][min(p.column, p.width):], []rune(strings.Repeat(" ", p.width)))
		p.clear(p.row + 1)
	case sequence == "[K":
		copy(p.cells[p.row][min(p.column, p.width):], []rune(strings.Repeat(" ", p.width)))
	case sequence == "[H":
		p.row, p.column = 0, 0
	case final == 'A':
		p.row = max(0, p.row-number)
	case final == 'm':
		p.colours = true
	default:
		p.Errorf("the control sequence ESC %s is not among those that the view uses", sequence)
	}
}
