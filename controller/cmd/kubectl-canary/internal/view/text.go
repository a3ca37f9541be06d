package view

import (
	"strings"
	"unicode"

	"golang.org/x/text/width"
)

// columns is how many cells of a terminal text takes. Characters of ambiguous width take
// one, as in every locale but the East Asian ones.
func columns(text string) int {
	n := 0
	for _, r := range text {
		n += cells(r)
	}
	return n
}

func cells(r rune) int {
	if r < 0x300 {
		return 1
	}
	if unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf) {
		return 0
	}
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	}
	return 1
}

// clean makes text of others fit into one line: no line breaks, and nothing that a
// terminal would obey. With ascii it also keeps to ASCII.
func clean(text string, ascii bool) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\r' || r == '\t':
			return ' '
		case unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp) || r == unicode.ReplacementChar || ascii && r > unicode.MaxASCII:
			return '?'
		}
		return r
	}, text)
}

// fit cuts text to a number of columns and shows by the ellipsis that it did.
func fit(text string, limit int, ellipsis string) string {
	if columns(text) <= limit {
		return text
	}
	room := limit - columns(ellipsis)
	if room < 0 {
		room, ellipsis = limit, ""
	}
	end, used := 0, 0
	for i, r := range text {
		if used+cells(r) > room {
			break
		}
		used += cells(r)
		end = i + len(string(r))
	}
	return text[:end] + ellipsis
}

func pad(text string, to int) string {
	return text + strings.Repeat(" ", max(0, to-columns(text)))
}

// wrap breaks text into lines of at most limit columns, between words where it can.
func wrap(text string, limit int) []string {
	limit = max(limit, 2)
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		for columns(word) > limit {
			if line != "" {
				lines, line = append(lines, line), ""
			}
			head := fit(word, limit, "")
			lines, word = append(lines, head), word[len(head):]
		}
		switch {
		case word == "":
		case line == "":
			line = word
		case columns(line)+1+columns(word) <= limit:
			line += " " + word
		default:
			lines, line = append(lines, line), word
		}
	}
	if line != "" {
		lines = append(lines, line)
	}
	return lines
}
