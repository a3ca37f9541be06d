package view

import (
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"
)

// Options say what there is to draw on.
type Options struct {
	// Width in columns; no line is longer. Less than 20 counts as 20.
	Width int
	// Now is the time that ages count from.
	Now time.Time
	// Colour writes ANSI colours.
	Colour bool
	// ASCII keeps to ASCII, for terminals without UTF-8.
	ASCII bool
}

// wide is the width from which there is room for everything about a check in one row.
const wide = 120

// colour is the parameter of ANSI's SGR sequence.
type colour string

const (
	plain  colour = ""
	bold   colour = "1"
	dim    colour = "2"
	red    colour = "31"
	green  colour = "32"
	yellow colour = "33"
	cyan   colour = "36"
)

// span is text of one colour.
type span struct {
	colour colour
	text   string
}

// glyphs are the characters that depend on the terminal.
type glyphs struct {
	full, part, empty, mark string
	pass, fail, hold, wrong string
	arrow, dot, ellipsis    string
	spark                   []string
}

var unicodeGlyphs = glyphs{
	full: "█", part: "▒", empty: "░", mark: "│",
	pass: "✔", fail: "✘", hold: "?", wrong: "!",
	arrow: "→", dot: "·", ellipsis: "…",
	spark: strings.Split("▁▂▃▄▅▆▇█", ""),
}

var asciiGlyphs = glyphs{
	full: "#", part: "=", empty: "-", mark: "|",
	pass: "+", fail: "x", hold: "?", wrong: "!",
	arrow: "->", dot: "-", ellipsis: "...",
	spark: strings.Split("_.:-=+*#", ""),
}

// page is a text being drawn.
type page struct {
	Options
	glyphs
	out strings.Builder
}

func newPage(o Options) *page {
	o.Width = max(o.Width, 20)
	if o.ASCII {
		return &page{Options: o, glyphs: asciiGlyphs}
	}
	return &page{Options: o, glyphs: unicodeGlyphs}
}

// line writes one line, cut where the page ends, which an ellipsis shows, and without
// blanks at its end.
func (p *page) line(spans ...span) {
	total := 0
	clear := make([]span, len(spans))
	for i, s := range spans {
		clear[i] = span{s.colour, clean(s.text, p.ASCII)}
		total += columns(clear[i].text)
	}
	for i := len(clear) - 1; i >= 0; i-- {
		trimmed := strings.TrimRight(clear[i].text, " ")
		total -= len(clear[i].text) - len(trimmed)
		if clear[i].text = trimmed; trimmed != "" {
			break
		}
	}
	room := p.Width
	if total > room {
		room -= columns(p.ellipsis)
	}
	for _, s := range clear {
		text := fit(s.text, room, "")
		room -= columns(text)
		p.out.WriteString(p.paint(s.colour, text))
		if text != s.text {
			p.out.WriteString(p.paint(s.colour, p.ellipsis))
			break
		}
	}
	p.out.WriteByte('\n')
}

func (p *page) paint(c colour, text string) string {
	if !p.Colour || c == plain || text == "" {
		return text
	}
	return "\x1b[" + string(c) + "m" + text + "\x1b[0m"
}

// label is the width of the names at the left of a section.
const label = 11

// section writes a name and text beside it, on as many lines as that takes.
func (p *page) section(name string, c colour, text string) {
	for i, part := range wrap(clean(text, p.ASCII), p.Width-label) {
		if i > 0 {
			name = ""
		}
		p.line(span{bold, pad(name, label)}, span{c, part})
	}
}

// paragraph writes indented text.
func (p *page) paragraph(indent int, c colour, text string) {
	for _, part := range wrap(clean(text, p.ASCII), p.Width-indent) {
		p.line(span{plain, strings.Repeat(" ", indent)}, span{c, part})
	}
}

// span returns how long something took or lasts, such as 4m10s.
func lasting(d time.Duration) string { return duration.HumanDuration(max(0, d)) }

func plural(n int64, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

// Notice is a warning in words, for below a view.
func Notice(text string, o Options) string {
	p := newPage(o)
	p.paragraph(0, red, text)
	return p.out.String()
}
