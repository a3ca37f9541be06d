package pod

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func writeLog(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "0.log")
	file, err := newLogFile(path)
	if err != nil {
		t.Fatal(err)
	}
	s := file.stream("stdout")
	if _, err := s.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	s.flush()
	file.close()
	return path
}

func readLog(t *testing.T, path string, o LogOptions) string {
	t.Helper()
	var out bytes.Buffer
	if err := CopyLog(context.Background(), path, &out, o); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestLogRoundTrip(t *testing.T) {
	long := strings.Repeat("x", 3*maxLogLine+5)
	for name, text := range map[string]string{
		"nothing": "", "a line": "a\n", "no end": "a\nb", "empty lines": "\n\n", "spaces": "  a  b \n",
		"a long line": long + "\nnext\n", "a long line without end": long,
	} {
		t.Run(name, func(t *testing.T) {
			if got := readLog(t, writeLog(t, text), LogOptions{Tail: -1}); got != text {
				t.Errorf("read %d bytes %.40q, want %d bytes %.40q", len(got), got, len(text), text)
			}
		})
	}
}

func TestLogOptions(t *testing.T) {
	path := writeLog(t, "one\ntwo\nthree\n")
	for name, tc := range map[string]struct {
		o    LogOptions
		want string
	}{
		"tail":       {LogOptions{Tail: 2}, "two\nthree\n"},
		"tail of 0":  {LogOptions{Tail: 0}, ""},
		"long tail":  {LogOptions{Tail: 9}, "one\ntwo\nthree\n"},
		"limit":      {LogOptions{Tail: -1, LimitBytes: 5}, "one\nt"},
		"since past": {LogOptions{Tail: -1, Since: time.Now().Add(-time.Hour)}, "one\ntwo\nthree\n"},
		"since then": {LogOptions{Tail: -1, Since: time.Now().Add(time.Hour)}, ""},
	} {
		if got := readLog(t, path, tc.o); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
	stamped := readLog(t, path, LogOptions{Tail: 1, Timestamps: true})
	at, text, _ := strings.Cut(stamped, " ")
	if when, err := time.Parse(time.RFC3339Nano, at); err != nil || time.Since(when) > time.Minute || text != "three\n" {
		t.Errorf("with time: %q (%v)", stamped, err)
	}
}

// A log that is set aside while it is followed is read on in the new one, and
// both parts are there for a later reader.
func TestLogRotationAndFollow(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0.log")
	file, err := newLogFile(path)
	if err != nil {
		t.Fatal(err)
	}
	s := file.stream("stdout")
	fmt.Fprintln(s, "first")
	var ended atomic.Bool
	out := make(chan string, 1)
	go func() {
		var got bytes.Buffer
		if err := CopyLog(context.Background(), path, &got, LogOptions{Tail: -1, Follow: true, Ended: ended.Load}); err != nil {
			t.Error(err)
		}
		out <- got.String()
	}()
	file.mu.Lock()
	file.size = maxLogBytes + 1
	file.mu.Unlock()
	fmt.Fprintln(s, "second")
	ended.Store(true)
	want := "first\nsecond\n"
	if got := <-out; got != want {
		t.Errorf("followed %q, want %q", got, want)
	}
	if _, err := os.Stat(path + rotatedSuffix); err != nil {
		t.Errorf("the full log was not set aside: %v", err)
	}
	if got := readLog(t, path, LogOptions{Tail: -1}); got != want {
		t.Errorf("read afterwards %q, want %q", got, want)
	}
	file.close()
}

// Readers find a whole log at any moment, also while one is set aside.
func TestLogIsThereWhileItIsSetAside(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0.log")
	file, err := newLogFile(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.close()
	s := file.stream("stdout")
	fmt.Fprintln(s, "line")
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 2000 {
			file.mu.Lock()
			file.size = maxLogBytes + 1
			file.mu.Unlock()
			fmt.Fprintln(s, "line")
			// As a process that fills a log, leave readers time for a look.
			time.Sleep(100 * time.Microsecond)
		}
	}()
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		// Those who fill it write after they have set it aside, so that the second may not be there yet.
		if got := readLog(t, path, LogOptions{Tail: -1}); got != "line\n" && got != "line\nline\n" {
			t.Fatalf("read %q", got)
		}
	}
}

func FuzzParseLogLine(f *testing.F) {
	f.Add([]byte("2026-01-01T00:00:00.5Z stdout F text with spaces"))
	f.Add([]byte("2026-01-01T00:00:00Z stdout P "))
	f.Add([]byte("x"))
	f.Fuzz(func(t *testing.T, line []byte) {
		l, ok := parseLogLine(line)
		if ok && !bytes.HasSuffix(line, l.text) {
			t.Errorf("text %q is no end of %q", l.text, line)
		}
	})
}
