package command

import (
	"os"
	"runtime"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/canarycontroller/canary-controller/controller/cmd/kubectl-canary/internal/view"
)

// screenFlags choose how text is drawn.
type screenFlags struct {
	ascii bool
	color string
	width int
}

func (s *screenFlags) bind(flags *pflag.FlagSet) {
	flags.BoolVar(&s.ascii, "ascii", false, "Draw with ASCII characters only; the default where the locale is not UTF-8")
	flags.StringVar(&s.color, "color", "auto", "auto, always or never; auto is on a terminal, unless NO_COLOR is set")
	flags.IntVar(&s.width, "width", 0, "Width in columns; the default is the terminal's, else $COLUMNS, else 80")
}

func (s *screenFlags) check() error {
	switch s.color {
	case "auto", "always", "never":
	default:
		return usage("--color is %q, it must be auto, always or never", s.color)
	}
	if s.width < 0 || s.width > 0 && s.width < 20 {
		return usage("--width is %d, it must be at least 20", s.width)
	}
	return nil
}

// terminal returns the terminal that output goes to, or nil.
func (a *app) terminal() *os.File {
	file, ok := a.Out.(*os.File)
	if !ok || a.Getenv("TERM") == "dumb" || !term.IsTerminal(int(file.Fd())) {
		return nil
	}
	return file
}

// drawing returns how to draw now, and the height of the terminal, 0 without one. The
// size is asked for each time, since a terminal's may change.
func (a *app) drawing() (o view.Options, height int) {
	o = view.Options{Width: 80, Now: a.now(), ASCII: a.screen.ascii || !unicodeLocale(a.Getenv)}
	terminal := a.terminal()
	if n, err := strconv.Atoi(a.Getenv("COLUMNS")); err == nil && n >= 20 {
		o.Width = n
	}
	if terminal != nil {
		if width, lines, err := term.GetSize(int(terminal.Fd())); err == nil && width > 0 {
			o.Width, height = width, lines
		}
	}
	if a.screen.width > 0 {
		o.Width = a.screen.width
	}
	o.Colour = a.screen.color == "always" || a.screen.color == "auto" && terminal != nil && a.Getenv("NO_COLOR") == ""
	return o, height
}

// unicodeLocale says whether the locale's character set is UTF-8. Windows has no such
// locales, its terminals take UTF-8.
func unicodeLocale(getenv func(string) string) bool {
	if runtime.GOOS == "windows" {
		return true
	}
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if value := strings.ToLower(getenv(name)); value != "" {
			return strings.Contains(value, "utf-8") || strings.Contains(value, "utf8")
		}
	}
	return false
}
