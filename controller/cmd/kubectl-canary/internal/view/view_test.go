package view

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
)

var update = flag.Bool("update", false, "write testdata anew")

// golden compares with a file of testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s differs (-want +got); go test -update writes it anew:\n%s", name, diff)
	}
}

func TestStatusOfEveryPhase(t *testing.T) {
	for name, s := range scenes() {
		for _, width := range []int{80, 160} {
			t.Run(fmt.Sprintf("%s-%d", name, width), func(t *testing.T) {
				text := Status(s.canary, Options{Width: width, Now: at(s.second).Time})
				checkWidth(t, text, width)
				golden(t, fmt.Sprintf("status-%s-%d.txt", name, width), text)
			})
		}
	}
}

func TestStatusInASCIIAndInColour(t *testing.T) {
	s := scenes()["analyzing"]
	ascii := Status(s.canary, Options{Width: 80, Now: at(s.second).Time, ASCII: true})
	if i := strings.IndexFunc(ascii, func(r rune) bool { return r > unicode.MaxASCII }); i >= 0 {
		t.Errorf("not ASCII: %q", ascii[i:])
	}
	golden(t, "status-ascii.txt", ascii)

	colour := Status(s.canary, Options{Width: 80, Now: at(s.second).Time, Colour: true})
	golden(t, "status-colour.txt", colour)
	if got := sgr.ReplaceAllString(colour, ""); got != Status(s.canary, Options{Width: 80, Now: at(s.second).Time}) {
		t.Error("colour changes more than colours")
	}
}

var sgr = regexp.MustCompile(`\x1b\[[0-9]+m`)

func TestWhy(t *testing.T) {
	for name, s := range scenes() {
		for _, width := range []int{80, 160} {
			t.Run(fmt.Sprintf("%s-%d", name, width), func(t *testing.T) {
				jaeger := map[int]string{80: "", 160: "http://localhost:16686/"}[width]
				text := Why(Explain(s.canary, jaeger, at(s.second).Time), Options{Width: width, Now: at(s.second).Time})
				checkWidth(t, text, width)
				golden(t, fmt.Sprintf("why-%s-%d.txt", name, width), text)
			})
		}
	}
}

// checkWidth holds that no line is longer than the page or ends in blanks.
func checkWidth(t interface{ Errorf(string, ...any) }, text string, width int) {
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if n := columns(line); n > width {
			t.Errorf("%d columns of %d: %s", n, width, line)
		}
		if strings.TrimRight(line, " ") != line {
			t.Errorf("blanks at the end of %q", line)
		}
	}
}

// TestAnythingFits draws texts and numbers that nobody meant to be drawn.
func TestAnythingFits(t *testing.T) {
	all := scenes()
	var names []string
	for name := range all {
		names = append(names, name)
	}
	rapid.Check(t, func(t *rapid.T) {
		c := all[rapid.SampledFrom(names).Draw(t, "scene")].canary.DeepCopy()
		text := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"\x1b[2Jgone", "日本語日本語", "a\u0301\u0301", "\u202eright to left", strings.Repeat("x", 300)}))
		count := rapid.Int32Range(-3, 2000)
		s := &c.Status
		c.Name, s.Message, s.Batch = text.Draw(t, "name"), text.Draw(t, "message"), text.Draw(t, "batch")
		s.TotalReplicas, s.CurrentBatch = count.Draw(t, "total"), count.Draw(t, "current")
		if s.New != nil {
			s.New.Name, s.New.Replicas, s.New.AvailableReplicas = text.Draw(t, "new"), count.Draw(t, "replicas"), count.Draw(t, "available")
		}
		for i := range s.Batches {
			s.Batches[i].Target = count.Draw(t, "target")
		}
		if s.Gate != nil {
			s.Gate.Message = text.Draw(t, "gate")
			for i := range s.Gate.Checks {
				check := &s.Gate.Checks[i]
				check.Name, check.Message, check.Value = text.Draw(t, "check"), text.Draw(t, "reason"), text.Draw(t, "value")
				check.Verdict = v1alpha1.Verdict(text.Draw(t, "verdict"))
				check.History = rapid.SliceOfN(rapid.SampledFrom([]string{"", "0", "1e308", "-1e308", "NaN", "+Inf", "7%", "x"}), 0, 40).Draw(t, "history")
			}
		}
		o := Options{Width: rapid.IntRange(20, 200).Draw(t, "width"), Now: at(rapid.IntRange(-5000, 5000).Draw(t, "now")).Time, ASCII: rapid.Bool().Draw(t, "ascii")}
		for _, text := range []string{Status(c, o), Why(Explain(c, "http://jaeger", o.Now), o), Notice(c.Status.Message, o)} {
			checkWidth(t, text, o.Width)
			checkHarmless(t, text)
		}
		for _, line := range Lines(nil, c, o.Now) {
			checkHarmless(t, strings.ReplaceAll(line, "\n", "\x1b"))
		}
		checkHarmless(t, Table([]v1alpha1.Canary{*c}, TableOptions{Message: true, Now: o.Now}))
	})
}

// checkHarmless holds that nothing in a text can steer a terminal.
func checkHarmless(t *rapid.T, text string) {
	for _, r := range text {
		if r != '\n' && unicode.IsControl(r) || unicode.In(r, unicode.Cf) {
			t.Fatalf("%U in %q", r, text)
		}
	}
}

func TestSparkline(t *testing.T) {
	for _, tc := range []struct {
		history []string
		want    string
		ascii   string
	}{
		{nil, "", ""},
		{[]string{"0%", "0%"}, "▁▁", "__"},
		{[]string{"0", "0.5", "1"}, "▁▅█", "_=#"},
		{[]string{"1%", "", "2%"}, "▅ █", "= #"},
		{[]string{"-1", "0", "1"}, "▁▅█", "_=#"},
		{[]string{"NaN", "+Inf", "3"}, "  █", "  #"},
		{strings.Split("1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22", " "), "▂▂▃▃▃▄▄▄▅▅▅▅▆▆▆▇▇▇██", ""},
	} {
		if got := newPage(Options{}).sparkline(tc.history, sparkWidth); columns(got) > sparkWidth || tc.want != "" && got != tc.want {
			t.Errorf("%v draws %q, want %q", tc.history, got, tc.want)
		}
		if got := newPage(Options{ASCII: true}).sparkline(tc.history, sparkWidth); tc.ascii != "" && got != tc.ascii {
			t.Errorf("%v draws %q in ASCII, want %q", tc.history, got, tc.ascii)
		}
	}
}

func TestText(t *testing.T) {
	for text, want := range map[string]int{"abc": 3, "日本": 4, "a\u0301": 1, "…": 1, "": 0} {
		if got := columns(text); got != want {
			t.Errorf("%q takes %d columns, want %d", text, got, want)
		}
	}
	for _, tc := range []struct {
		text  string
		limit int
		want  string
	}{{"abcdef", 6, "abcdef"}, {"abcdefg", 6, "abcde…"}, {"日本語", 5, "日本…"}, {"日本語", 4, "日…"}, {"abc", 0, ""}} {
		if got := fit(tc.text, tc.limit, "…"); got != tc.want {
			t.Errorf("fit(%q, %d) is %q, want %q", tc.text, tc.limit, got, tc.want)
		}
	}
	got := strings.Join(wrap("one two  three verylongword 日本語日本語", 8), "|")
	if want := "one two|three|verylong|word|日本語日|本語"; got != want {
		t.Errorf("wrapped to %s, want %s", got, want)
	}
	if got := clean("a\x1b[31mb\nc\u202ed\u00e9", true); got != "a?[31mb c?d?" {
		t.Errorf("clean gives %q", got)
	}
}

func TestLines(t *testing.T) {
	all := scenes()
	first, then := all["analyzing"].canary, all["rolling-back"].canary
	got := strings.Join(Lines(nil, first, start), "\n") + "\n\n" + strings.Join(Lines(first, then, start), "\n") + "\n"
	golden(t, "lines.txt", got)
	if lines := Lines(then, then, start.Add(1)); len(lines) > 0 {
		t.Errorf("nothing changed, yet %q", lines)
	}
}

func TestTable(t *testing.T) {
	var list []v1alpha1.Canary
	for _, name := range []string{"completed", "analyzing", "unseen"} {
		list = append(list, *scenes()[name].canary)
	}
	golden(t, "table.txt", Table(list, TableOptions{Now: start})+"\n"+Table(list, TableOptions{Namespaces: true, Message: true, Now: start})+"\n"+Table(list[:1], TableOptions{NoHeaders: true, Now: start}))
}
