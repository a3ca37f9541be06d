package pod

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// LogOptions say which part of a log to read and how.
type LogOptions struct {
	// Tail is the number of lines from the end; negative: all.
	Tail       int
	LimitBytes int
	Since      time.Time
	Timestamps bool
	Follow     bool
	// Ended reports whether nothing more will be written; needed to follow.
	Ended func() bool
}

// followPeriod is how often a followed log is looked at.
const followPeriod = 100 * time.Millisecond

// openPatience is how long a log that is being set aside is tried to be opened.
const openPatience = time.Second

// logLine is one parsed line of a log.
type logLine struct {
	at   time.Time
	full bool
	text []byte
}

// parseLogLine reads a line of the CRI logging format, without its end.
func parseLogLine(line []byte) (logLine, bool) {
	parts := bytes.SplitN(line, []byte(" "), 4)
	if len(parts) != 4 {
		return logLine{}, false
	}
	at, err := time.Parse(time.RFC3339Nano, string(parts[0]))
	if err != nil || len(parts[2]) == 0 {
		return logLine{}, false
	}
	return logLine{at: at, full: parts[2][0] == 'F', text: parts[3]}, true
}

// render is the line as a reader of the log sees it, nothing if it is too old.
func (o LogOptions) render(line []byte) []byte {
	l, ok := parseLogLine(line)
	if !ok || l.at.Before(o.Since) {
		return nil
	}
	var out []byte
	if o.Timestamps {
		out = append(l.at.AppendFormat(out, time.RFC3339Nano), ' ')
	}
	out = append(out, l.text...)
	if l.full {
		out = append(out, '\n')
	}
	return out
}

// tailLines are the last n lines of a log as a reader sees them.
func tailLines(path string, n int) ([]string, error) {
	var lines []string
	o := LogOptions{Tail: n}
	err := eachLine(path, func(line []byte) {
		if text := o.render(line); text != nil {
			lines = append(lines, string(text))
		}
		if n >= 0 && len(lines) > n {
			lines = lines[1:]
		}
	})
	return lines, err
}

// openLog opens the log and the one that was set aside before it, nil if there
// is none. While a log is set aside there is for an instant none at path, and
// between two looks one file may become the other, so it looks until both are of
// one time.
func openLog(path string) (old, current *os.File, err error) {
	for deadline := time.Now().Add(openPatience); ; time.Sleep(time.Millisecond) {
		old, err = os.Open(path + rotatedSuffix)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, nil, err
		}
		current, err = os.Open(path)
		now, _ := os.Stat(path + rotatedSuffix)
		if err == nil && sameFile(old, now) {
			return old, current, nil
		}
		closeAll(old, current)
		if err != nil && (!errors.Is(err, os.ErrNotExist) || now == nil) || time.Now().After(deadline) {
			return nil, nil, fmt.Errorf("opening the log %s: %w", path, cmp.Or(err, errMoving))
		}
	}
}

var errMoving = errors.New("it is set aside again and again")

func sameFile(file *os.File, now os.FileInfo) bool {
	if file == nil || now == nil {
		return file == nil && now == nil
	}
	have, err := file.Stat()
	return err == nil && os.SameFile(have, now)
}

func closeAll(files ...*os.File) {
	for _, file := range files {
		if file != nil {
			_ = file.Close()
		}
	}
}

// eachLine calls f for every complete line of the log and of the one that was
// set aside before it.
func eachLine(path string, f func([]byte)) error {
	old, current, err := openLog(path)
	if err != nil {
		return err
	}
	defer closeAll(old, current)
	for _, file := range []*os.File{old, current} {
		if file == nil {
			continue
		}
		if _, err := scan(file, f); err != nil {
			return err
		}
	}
	return nil
}

// CopyLog writes the log in path to w as o says, until its end or, following,
// until ctx ends or nothing more can come.
func CopyLog(ctx context.Context, path string, w io.Writer, o LogOptions) error {
	out := &limited{w: w, left: o.LimitBytes, all: o.LimitBytes <= 0}
	old, file, err := openLog(path)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	err = o.copyPresent(old, file, out)
	closeAll(old)
	if err != nil || !o.Follow {
		return ignoreLimit(err)
	}
	reader := bufio.NewReader(file)
	var rest []byte
	for {
		ended := o.Ended == nil || o.Ended()
		for {
			part, err := reader.ReadBytes('\n')
			rest = append(rest, part...)
			if err != nil {
				break
			}
			if _, err := out.Write(o.render(rest[:len(rest)-1])); err != nil {
				return ignoreLimit(err)
			}
			rest = rest[:0]
		}
		if next, err := replaced(path, file); err == nil && next != nil {
			_ = file.Close()
			file, rest = next, rest[:0]
			reader.Reset(file)
			continue
		}
		if ended {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(followPeriod):
		}
	}
}

// copyPresent writes what is there already, of old if it is not nil and of file,
// and leaves file behind the last complete line of it.
func (o LogOptions) copyPresent(old, file *os.File, out io.Writer) error {
	var lines [][]byte
	full := 0
	add := func(line []byte) {
		text := o.render(line)
		if text == nil || o.Tail == 0 {
			return
		}
		lines = append(lines, text)
		if text[len(text)-1] == '\n' {
			full++
		}
		for o.Tail > 0 && full > o.Tail {
			if first := lines[0]; first[len(first)-1] == '\n' {
				full--
			}
			lines = lines[1:]
		}
	}
	if old != nil {
		if _, err := scan(old, add); err != nil {
			return err
		}
	}
	end, err := scan(file, add)
	if err != nil {
		return err
	}
	if _, err := file.Seek(end, io.SeekStart); err != nil {
		return err
	}
	for _, l := range lines {
		if _, err := out.Write(l); err != nil {
			return err
		}
	}
	return nil
}

// scan calls f for each complete line and returns the offset behind the last.
func scan(r io.Reader, f func([]byte)) (int64, error) {
	reader := bufio.NewReader(r)
	var end int64
	for {
		line, err := reader.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return end, nil
		}
		if err != nil {
			return end, err
		}
		end += int64(len(line))
		f(line[:len(line)-1])
	}
}

// replaced returns the file now at path if it is not file any more.
func replaced(path string, file *os.File) (*os.File, error) {
	have, err := file.Stat()
	if err != nil {
		return nil, err
	}
	now, err := os.Stat(path)
	if err != nil || os.SameFile(have, now) {
		return nil, err
	}
	return os.Open(path)
}

var errLimit = errors.New("limit reached")

func ignoreLimit(err error) error {
	if errors.Is(err, errLimit) {
		return nil
	}
	return err
}

// limited writes at most left bytes, unless all.
type limited struct {
	w    io.Writer
	left int
	all  bool
}

func (l *limited) Write(text []byte) (int, error) {
	if l.all {
		return l.w.Write(text)
	}
	n, err := l.w.Write(text[:min(len(text), l.left)])
	l.left -= n
	if err == nil && l.left == 0 {
		err = errLimit
	}
	return n, err
}
