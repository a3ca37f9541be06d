package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
)

func main() {
	counts := flag.String("counts", "", "append the counts of this run to `file`, one line each")
	var expected []string
	flag.Func("expected-skips", "`file` with a line for each test that may be skipped: package, test, reason; # begins a comment; may be given again", func(file string) error {
		expected = append(expected, file)
		return nil
	})
	verbose := flag.Bool("v", false, "show each test as it ends")
	total := flag.Bool("total", false, "read no events: print the sum of what is in the counts file, and fail if it has a failure")
	flag.Parse()
	ok, err := run(os.Stdin, os.Stdout, *counts, expected, *verbose, *total)
	if err != nil {
		fmt.Fprintln(os.Stderr, "testsummary:", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

func run(in io.Reader, out io.Writer, countsFile string, expectedFiles []string, verbose, total bool) (bool, error) {
	if total {
		sum, err := readCounts(countsFile)
		if err != nil {
			return false, err
		}
		fmt.Fprintln(out, sum)
		return sum.failed == 0, nil
	}
	expected, err := readExpected(expectedFiles)
	if err != nil {
		return false, err
	}
	s := &summary{out: out, verbose: verbose, expected: expected, output: map[string][]string{}, packages: map[string]*counts{}}
	if err := s.read(in); err != nil {
		return false, err
	}
	s.finish()
	if countsFile != "" {
		f, err := os.OpenFile(countsFile, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
		if err != nil {
			return false, err
		}
		_, err = fmt.Fprintln(f, s.all)
		if err := errors.Join(err, f.Close()); err != nil {
			return false, fmt.Errorf("keeping the counts: %w", err)
		}
	}
	return s.all.failed == 0, nil
}

type counts struct{ passed, failed, skipped int }

func (c counts) String() string {
	return fmt.Sprintf("%d passed, %d failed, %d skipped", c.passed, c.failed, c.skipped)
}

func readCounts(file string) (counts, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return counts{}, fmt.Errorf("reading the counts: %w", err)
	}
	var sum counts
	for line := range strings.Lines(string(text)) {
		var c counts
		if _, err := fmt.Sscanf(line, "%d passed, %d failed, %d skipped", &c.passed, &c.failed, &c.skipped); err != nil {
			return counts{}, fmt.Errorf("%s: line %q: %w", file, strings.TrimSpace(line), err)
		}
		sum.passed += c.passed
		sum.failed += c.failed
		sum.skipped += c.skipped
	}
	return sum, nil
}

// readExpected reads "package test reason" lines into a set of package and test. A file that
// does not exist has none.
func readExpected(files []string) (map[string]bool, error) {
	set := map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("reading the expected skips: %w", err)
		}
		for line := range strings.Lines(string(text)) {
			if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
				continue
			}
			fields := strings.Fields(line)
			if len(fields) < 3 {
				return nil, fmt.Errorf("%s: %q: want package, test and reason", file, line)
			}
			set[fields[0]+" "+fields[1]] = true
		}
	}
	return set, nil
}

// event is one line of go test -json; see go doc test2json and go help buildjson.
type event struct {
	Action, Package, ImportPath, Test, Output string
	Elapsed                                   float64
}

type summary struct {
	out      io.Writer
	verbose  bool
	expected map[string]bool
	// output holds what tests that have not ended wrote, by package and test.
	output   map[string][]string
	packages map[string]*counts
	all      counts
	skips    []string
	failures []string
}

func (s *summary) read(in io.Reader) error {
	r := bufio.NewReader(in)
	for {
		line, err := r.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if jsonErr := json.Unmarshal(line, &e); jsonErr != nil {
				// The go command's own messages are no events.
				fmt.Fprintf(s.out, "%s", line)
			} else {
				s.event(e)
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading the events: %w", err)
		}
	}
}

func (s *summary) event(e event) {
	key := e.Package + " " + e.Test
	switch e.Action {
	case "output":
		s.output[key] = append(s.output[key], e.Output)
	case "build-output":
		s.output[e.ImportPath] = append(s.output[e.ImportPath], e.Output)
	case "build-fail":
		s.show(e.ImportPath)
	case "pass", "fail", "skip":
		if e.Test == "" {
			s.packageEnded(e)
		} else {
			s.testEnded(e, key)
		}
		delete(s.output, key)
	}
}

func (s *summary) testEnded(e event, key string) {
	c := s.packages[e.Package]
	if c == nil {
		c = &counts{}
		s.packages[e.Package] = c
	}
	if s.verbose && !strings.Contains(e.Test, "/") {
		fmt.Fprintf(s.out, "     %-4s %s (%.1fs)\n", e.Action, e.Test, e.Elapsed)
	}
	switch e.Action {
	case "pass":
		c.passed++
	case "fail":
		c.failed++
		s.failures = append(s.failures, key)
		s.show(key)
	case "skip":
		c.skipped++
		reason := strings.Join(strings.Fields(strings.Join(s.output[key], " ")), " ")
		if s.expected[key] {
			s.skips = append(s.skips, "expected: "+reason)
			return
		}
		c.failed++
		s.failures = append(s.failures, key+" (skipped, and not among the expected skips)")
		s.skips = append(s.skips, "NOT EXPECTED: "+e.Package+" "+reason)
	}
}

func (s *summary) packageEnded(e event) {
	c := s.packages[e.Package]
	if c == nil {
		c = &counts{}
	}
	delete(s.packages, e.Package)
	if e.Action == "skip" { // no test files
		return
	}
	if e.Action == "fail" && c.failed == 0 {
		// It did not build, or ended outside a test: a race, a leak, a time-out.
		c.failed++
		s.failures = append(s.failures, e.Package)
		s.show(e.Package + " ")
		for key := range s.output {
			if strings.HasPrefix(key, e.Package+" ") && key != e.Package+" " {
				s.show(key)
			}
		}
	}
	mark := "ok  "
	if c.failed > 0 {
		mark = "FAIL"
	}
	fmt.Fprintf(s.out, "%s %s %.1fs (%s)\n", mark, e.Package, e.Elapsed, c)
	s.add(*c)
}

func (s *summary) add(c counts) {
	s.all.passed += c.passed
	s.all.failed += c.failed
	s.all.skipped += c.skipped
}

// show prints what a failed test or build wrote.
func (s *summary) show(key string) {
	fmt.Fprintf(s.out, "---- %s\n%s", key, strings.Join(s.output[key], ""))
	delete(s.output, key)
}

func (s *summary) finish() {
	// A package whose end never came: the go command was killed.
	for name, c := range s.packages {
		c.failed++
		s.failures = append(s.failures, name+" (did not end)")
		s.add(*c)
	}
	for _, skip := range s.skips {
		fmt.Fprintln(s.out, "skipped,", skip)
	}
	for _, failure := range s.failures {
		fmt.Fprintln(s.out, "failed:", failure)
	}
	fmt.Fprintln(s.out, s.all)
}
