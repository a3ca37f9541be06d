package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func write(t *testing.T, name, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestEvents(t *testing.T) {
	const pass = `{"Action":"pass","Package":"p","Test":"TestA","Elapsed":0.1}` + "\n"
	const skip = `{"Action":"output","Package":"p","Test":"TestB","Output":"    b_test.go:3: no such tool\n"}` + "\n" +
		`{"Action":"skip","Package":"p","Test":"TestB"}` + "\n"
	const end = `{"Action":"pass","Package":"p","Elapsed":0.2}` + "\n"
	for name, c := range map[string]struct {
		events   string
		expected string
		ok       bool
		counts   string
		says     []string
	}{
		"passes":            {events: pass + end, ok: true, counts: "1 passed, 0 failed, 0 skipped", says: []string{"ok   p 0.2s (1 passed"}},
		"no tests":          {events: `{"Action":"skip","Package":"p"}` + "\n", ok: true, counts: "0 passed, 0 failed, 0 skipped"},
		"an expected skip":  {events: pass + skip + end, expected: "# why\np TestB needs a tool\n", ok: true, counts: "1 passed, 0 failed, 1 skipped", says: []string{"skipped, expected: b_test.go:3: no such tool"}},
		"an unexpected one": {events: pass + skip + end, expected: "p TestC needs a tool\n", counts: "1 passed, 1 failed, 1 skipped", says: []string{"skipped, NOT EXPECTED: p b_test.go:3: no such tool", "failed: p TestB (skipped"}},
		"a failure": {
			events: `{"Action":"output","Package":"p","Test":"TestA","Output":"got 1, want 2\n"}` + "\n" + `{"Action":"fail","Package":"p","Test":"TestA"}` + "\n" + `{"Action":"fail","Package":"p","Elapsed":1}` + "\n",
			counts: "0 passed, 1 failed, 0 skipped", says: []string{"got 1, want 2", "FAIL p 1.0s", "failed: p TestA"},
		},
		"a build that fails": {
			events: `{"ImportPath":"p","Action":"build-output","Output":"p.go:1: syntax error\n"}` + "\n" + `{"ImportPath":"p","Action":"build-fail"}` + "\n" + `{"Action":"fail","Package":"p","FailedBuild":"p"}` + "\n",
			counts: "0 passed, 1 failed, 0 skipped", says: []string{"p.go:1: syntax error"},
		},
		"a failure outside of tests": {
			events: pass + `{"Action":"output","Package":"p","Output":"goroutine leak\n"}` + "\n" + `{"Action":"fail","Package":"p"}` + "\n",
			counts: "1 passed, 1 failed, 0 skipped", says: []string{"goroutine leak", "failed: p"},
		},
		"a run cut short":       {events: pass, counts: "1 passed, 1 failed, 0 skipped", says: []string{"failed: p (did not end)"}},
		"messages of go itself": {events: "go: downloading x v1\n" + pass + end, ok: true, counts: "1 passed, 0 failed, 0 skipped", says: []string{"go: downloading x v1"}},
	} {
		t.Run(name, func(t *testing.T) {
			counts := filepath.Join(t.TempDir(), "counts")
			var out strings.Builder
			ok, err := run(strings.NewReader(c.events), &out, counts, []string{write(t, "skips", c.expected)}, false, false)
			if err != nil {
				t.Fatal(err)
			}
			text, err := os.ReadFile(counts)
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.TrimSpace(string(text)); ok != c.ok || got != c.counts {
				t.Errorf("ok %t, %q; want %t, %q", ok, got, c.ok, c.counts)
			}
			for _, want := range append(c.says, c.counts) {
				if !strings.Contains(out.String(), want) {
					t.Errorf("does not say %q:\n%s", want, out.String())
				}
			}
		})
	}
}

func TestTotal(t *testing.T) {
	for name, c := range map[string]struct {
		file string
		ok   bool
		says string
	}{
		"good": {file: "3 passed, 0 failed, 1 skipped\n4 passed, 0 failed, 0 skipped\n", ok: true, says: "7 passed, 0 failed, 1 skipped\n"},
		"bad":  {file: "3 passed, 2 failed, 1 skipped\n", says: "3 passed, 2 failed, 1 skipped\n"},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			ok, err := run(nil, &out, write(t, "counts", c.file), nil, false, true)
			if err != nil || ok != c.ok || out.String() != c.says {
				t.Errorf("%t %v %q, want %t %q", ok, err, out.String(), c.ok, c.says)
			}
		})
	}
}

func TestBadFiles(t *testing.T) {
	var out strings.Builder
	if _, err := run(strings.NewReader(""), &out, "", []string{write(t, "skips", "p TestB\n")}, false, false); err == nil || !strings.Contains(err.Error(), "want package, test and reason") {
		t.Errorf("a skip without a reason: %v", err)
	}
	if _, err := run(nil, &out, write(t, "counts", "many\n"), nil, false, true); err == nil || !strings.Contains(err.Error(), `line "many"`) {
		t.Errorf("unreadable counts: %v", err)
	}
}

func TestExpectedSkipsOfSeveralFiles(t *testing.T) {
	got, err := readExpected([]string{write(t, "one", "p TestA why\n"), filepath.Join(t.TempDir(), "none"), write(t, "two", "# more\np TestB why\n")})
	if err != nil || len(got) != 2 || !got["p TestA"] || !got["p TestB"] {
		t.Errorf("read %v (%v)", got, err)
	}
}
