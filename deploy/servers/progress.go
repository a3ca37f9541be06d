package servers

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
)

const (
	terminalPeriod = 250 * time.Millisecond
	linePeriod     = 15 * time.Second
	// maxComplaints is how much of the go command's output is kept.
	maxComplaints = 64 << 10
)

// progress shows how a build comes along, from what the go command prints.
type progress struct {
	out      io.Writer
	terminal bool
	name     string
	begun    time.Time
	ticker   *time.Ticker
	quit     chan struct{}
	wg       sync.WaitGroup

	mu       sync.Mutex
	rest     []byte
	packages int
	modules  int
	latest   string
	other    bytes.Buffer
}

func startProgress(out io.Writer, name string, now time.Time) *progress {
	p := &progress{out: out, terminal: isTerminal(out), name: name, begun: now, quit: make(chan struct{})}
	period := linePeriod
	if p.terminal {
		period = terminalPeriod
	} else {
		fmt.Fprintf(out, "building %s (the first time takes minutes)\n", name)
	}
	p.ticker = time.NewTicker(period)
	p.wg.Go(func() {
		for {
			select {
			case <-p.quit:
				return
			case now := <-p.ticker.C:
				p.show(now)
			}
		}
	})
	return p
}

// isTerminal reports whether out is one, as far as the standard library tells.
func isTerminal(out io.Writer) bool {
	file, ok := out.(*os.File)
	if !ok || os.Getenv("TERM") == "dumb" {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0 && file.Name() != os.DevNull
}

// Write takes in the go command's output.
func (p *progress) Write(text []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rest = append(p.rest, text...)
	for {
		i := bytes.IndexByte(p.rest, '\n')
		if i < 0 {
			return len(text), nil
		}
		p.line(p.rest[:i])
		p.rest = p.rest[i+1:]
	}
}

func (p *progress) line(line []byte) {
	switch {
	case isPackage(line):
		p.packages++
		p.latest = string(line)
	case bytes.HasPrefix(line, []byte("go: downloading ")):
		p.modules++
		p.latest = string(line[len("go: "):])
	case p.other.Len() < maxComplaints:
		p.other.Write(line)
		p.other.WriteByte('\n')
	}
}

func (p *progress) text(now time.Time) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var parts []string
	if p.modules > 0 {
		parts = append(parts, fmt.Sprintf("%d modules downloaded", p.modules))
	}
	parts = append(parts, fmt.Sprintf("%d packages compiled", p.packages), now.Sub(p.begun).Round(time.Second).String())
	text := fmt.Sprintf("building %s: %s", p.name, strings.Join(parts, ", "))
	if p.latest != "" {
		text += ", last " + p.latest
	}
	return text
}

// terminalWidth is what one line surely has room for.
const terminalWidth = 79

func (p *progress) show(now time.Time) {
	text := p.text(now)
	if !p.terminal {
		fmt.Fprintln(p.out, text)
		return
	}
	fmt.Fprintf(p.out, "\r\x1b[K%s", text[:min(len(text), terminalWidth)])
}

// stop ends the display with the outcome.
func (p *progress) stop(err error) {
	p.ticker.Stop()
	close(p.quit)
	p.wg.Wait()
	p.mu.Lock()
	if len(p.rest) > 0 {
		p.line(p.rest)
		p.rest = nil
	}
	packages := p.packages
	p.mu.Unlock()
	if p.terminal {
		fmt.Fprint(p.out, "\r\x1b[K")
	}
	outcome := "built"
	if err != nil {
		outcome = "could not build"
	}
	fmt.Fprintf(p.out, "%s %s: %d packages in %s\n", outcome, p.name, packages, time.Since(p.begun).Round(time.Second))
}

// complaints is what the go command said besides its progress.
func (p *progress) complaints() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.other.String()
}
