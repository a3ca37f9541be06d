package pod

import (
	"bytes"
	"fmt"
	"os"
	"sync"
	"time"
)

const (
	// maxLogBytes is the size at which a log is set aside for a fresh one. The
	// one set aside before is dropped then.
	maxLogBytes = 16 << 20
	// maxLogLine is the length at which a line is written in parts.
	maxLogLine = 16 << 10
)

// rotatedSuffix names the log that was set aside.
const rotatedSuffix = ".1"

// logFile is the output of one run of a container, in the CRI logging format
// (kubernetes/design-proposals-archive, kubelet-cri-logging.md): for each line
// the time, the stream, F for a full line or P for a part of one, the text.
type logFile struct {
	path string

	mu   sync.Mutex
	file *os.File
	size int64
}

func newLogFile(path string) (*logFile, error) {
	f := &logFile{path: path}
	return f, f.open()
}

func (f *logFile) open() error {
	file, err := os.OpenFile(f.path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("opening a container's log: %w", err)
	}
	f.file, f.size = file, 0
	return nil
}

func (f *logFile) line(stream, tag string, text []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.file == nil {
		return os.ErrClosed
	}
	if f.size > maxLogBytes {
		_ = f.file.Close()
		if err := os.Rename(f.path, f.path+rotatedSuffix); err != nil {
			return err
		}
		if err := f.open(); err != nil {
			f.file = nil
			return err
		}
	}
	n, err := fmt.Fprintf(f.file, "%s %s %s %s\n", time.Now().Format(time.RFC3339Nano), stream, tag, text)
	f.size += int64(n)
	return err
}

func (f *logFile) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.file != nil {
		_ = f.file.Close()
		f.file = nil
	}
}

func (f *logFile) stream(name string) *logStream { return &logStream{file: f, name: name} }

// logStream is one of a process's two output streams. One goroutine writes.
type logStream struct {
	file *logFile
	name string
	mu   sync.Mutex
	rest []byte
}

func (s *logStream) Write(text []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rest = append(s.rest, text...)
	for {
		i := bytes.IndexByte(s.rest, '\n')
		switch {
		case i >= 0 && i <= maxLogLine:
			if err := s.file.line(s.name, "F", s.rest[:i]); err != nil {
				return 0, err
			}
			s.rest = s.rest[i+1:]
		case len(s.rest) > maxLogLine:
			if err := s.file.line(s.name, "P", s.rest[:maxLogLine]); err != nil {
				return 0, err
			}
			s.rest = s.rest[maxLogLine:]
		default:
			return len(text), nil
		}
	}
}

// flush writes a last line without an end.
func (s *logStream) flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.rest) > 0 {
		_ = s.file.line(s.name, "P", s.rest)
		s.rest = nil
	}
}
