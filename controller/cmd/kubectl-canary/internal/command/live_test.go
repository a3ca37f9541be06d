package command

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

func TestLiveKeepsToTheTerminal(t *testing.T) {
	var out bytes.Buffer
	l := &live{out: &out}
	draw := func(text string, width, height int) string {
		t.Helper()
		out.Reset()
		if err := l.draw(text, width, height, "…"); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	for _, tc := range []struct {
		text          string
		width, height int
		want          string
	}{
		{"one\ntwo\n", 40, 10, "\x1b[?25l\r\x1b[Kone\n\r\x1b[Ktwo\n\x1b[J"},
		{"three\n", 40, 10, "\r\x1b[2A\r\x1b[Kthree\n\x1b[J"},
		{"a\nb\nc\nd\n", 40, 4, "\x1b[H\x1b[2J\r\x1b[Ka\n\r\x1b[Kb\n\r\x1b[K… 2 more lines, the terminal is too low\n\x1b[J"},
		{"a\nb\nc\nd\n", 20, 4, "\x1b[H\x1b[2J\r\x1b[Ka\n\r\x1b[Kb\n\r\x1b[K…\n\x1b[J"},
		{"a\n", 20, 4, "\r\x1b[3A\r\x1b[Ka\n\x1b[J"},
		{"a\n", 20, 0, "\x1b[H\x1b[2J\r\x1b[Ka\n\x1b[J"},
	} {
		if got := draw(tc.text, tc.width, tc.height); got != tc.want {
			t.Errorf("%q at %dx%d writes\n%q, want\n%q", tc.text, tc.width, tc.height, got, tc.want)
		}
	}
	out.Reset()
	l.close()
	if out.String() != showCursor {
		t.Errorf("the end writes %q", out.String())
	}
	out.Reset()
	(&live{out: &out}).close()
	if out.Len() > 0 {
		t.Errorf("a view that was never drawn ends with %q", out.String())
	}
	if err := (&live{out: brokenPipe{}}).draw("a\n", 20, 4, "…"); err == nil || !strings.Contains(err.Error(), "gone") {
		t.Errorf("got %v from a terminal that is gone", err)
	}
}

type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, errors.New("gone") }

func TestLocale(t *testing.T) {
	for _, tc := range []struct {
		env  map[string]string
		want bool
	}{
		{map[string]string{"LANG": "de_DE.UTF-8"}, true},
		{map[string]string{"LANG": "C.utf8"}, true},
		{map[string]string{"LANG": "C"}, false},
		{map[string]string{}, false},
		{map[string]string{"LANG": "C.UTF-8", "LC_ALL": "POSIX"}, false},
		{map[string]string{"LANG": "C", "LC_CTYPE": "C.UTF-8"}, true},
	} {
		if got := unicodeLocale(func(name string) string { return tc.env[name] }); got != tc.want {
			t.Errorf("%v: %v", tc.env, got)
		}
	}
}
