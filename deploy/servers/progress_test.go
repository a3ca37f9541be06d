package servers

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestProgressCounts(t *testing.T) {
	var out bytes.Buffer
	begun := time.Now()
	p := startProgress(&out, "thing", begun)
	fmt.Fprint(p, "go: downloading example.com/a v1.0.0\ninternal/cpu\nk8s.io/api/core/v1\n# k8s.io/api\nx.go:1:2: undefined: y\nruntime/cgo")
	if got, want := p.text(begun.Add(65*time.Second)), "building thing: 1 modules downloaded, 2 packages compiled, 1m5s, last k8s.io/api/core/v1"; got != want {
		t.Errorf("text %q, want %q", got, want)
	}
	p.stop(errors.New("failed"))
	if got := out.String(); !strings.Contains(got, "could not build thing: 3 packages in ") {
		t.Errorf("shown at last: %q", got)
	}
	if got, want := p.complaints(), "# k8s.io/api\nx.go:1:2: undefined: y\n"; got != want {
		t.Errorf("complaints %q, want %q", got, want)
	}
}

func TestProgressOnATerminal(t *testing.T) {
	var out bytes.Buffer
	p := startProgress(&out, "thing", time.Now())
	out.Reset()
	p.terminal = true
	fmt.Fprintf(p, "example.com/%s\n", strings.Repeat("long/", 40))
	p.show(time.Now())
	line := strings.TrimPrefix(out.String(), "\r\x1b[K")
	if line == out.String() || len(line) > terminalWidth || strings.Contains(line, "\n") {
		t.Errorf("shown %q, want one short line over the one before", out.String())
	}
	p.stop(nil)
	if !strings.HasSuffix(out.String(), "\n") || !strings.Contains(out.String(), "built thing: 1 packages") {
		t.Errorf("shown at last: %q", out.String())
	}
}

func FuzzProgress(f *testing.F) {
	f.Add([]byte("go: downloading x v1\na/b\n# c\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		p := &progress{out: &bytes.Buffer{}, name: "x"}
		if n, err := p.Write(text); n != len(text) || err != nil {
			t.Errorf("Write = %d, %v", n, err)
		}
		lines := bytes.Count(text, []byte("\n"))
		if p.packages+p.modules > lines {
			t.Errorf("%d packages and %d modules in %d lines", p.packages, p.modules, lines)
		}
	})
}
