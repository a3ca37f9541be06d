package command

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// The control sequences of the live view: ECMA-48's CUU, EL, ED and CUP, and the private
// mode of the cursor that terminals since the VT220 have.
const (
	hideCursor  = "\x1b[?25l"
	showCursor  = "\x1b[?25h"
	eraseLine   = "\x1b[K"
	eraseBelow  = "\x1b[J"
	clearScreen = "\x1b[H\x1b[2J"
)

// live redraws a text in place on a terminal.
type live struct {
	out           io.Writer
	drawn         int
	width, height int
	started       bool
}

// draw replaces what was drawn before. It keeps to the height of the terminal, since what
// has scrolled away cannot be redrawn.
func (l *live) draw(text string, width, height int, ellipsis string) error {
	var out strings.Builder
	if !l.started {
		out.WriteString(hideCursor)
		l.started = true
	} else if width != l.width || height != l.height {
		// The terminal has moved the lines about, where they are now is not known.
		out.WriteString(clearScreen)
		l.drawn = 0
	}
	l.width, l.height = width, height
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if most := height - 1; height > 1 && len(lines) > most {
		left := len(lines) - most + 1
		lines = append(lines[:most-1:most-1], fmt.Sprintf("%s %d more lines, the terminal is too low", ellipsis, left))
		if utf8.RuneCountInString(lines[most-1]) > width {
			lines[most-1] = ellipsis
		}
	}
	if l.drawn > 0 {
		fmt.Fprintf(&out, "\r\x1b[%dA", l.drawn)
	}
	for _, line := range lines {
		// Erased first: after a line as wide as the terminal this would take its last character.
		out.WriteString("\r" + eraseLine + line + "\n")
	}
	out.WriteString(eraseBelow)
	l.drawn = len(lines)
	_, err := io.WriteString(l.out, out.String())
	return err
}

// close gives the cursor back.
func (l *live) close() {
	if l.started {
		// There is nobody left to tell of a terminal that is gone.
		_, _ = io.WriteString(l.out, showCursor)
	}
}
