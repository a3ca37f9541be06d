package pod

import (
	"cmp"
	"slices"
	"strings"
)

// mount is a path inside a container and the directory or file of this
// machine that stands for it.
type mount struct {
	path, host string
}

// sortMounts puts the longest paths first, so that a mount below another wins.
func sortMounts(mounts []mount) {
	slices.SortStableFunc(mounts, func(a, b mount) int { return cmp.Compare(len(b.path), len(a.path)) })
}

// Characters between which a path stands within an argument or a variable, as
// in --config=/etc/app/config.yaml or /etc/a:/etc/b.
const (
	pathOpens  = "=,;: \t\n\"'@("
	pathCloses = "/,;: \t\n\"')"
)

// rewrite replaces the mounts' paths within text by what stands for them.
// Processes share this machine's file tree, so that a container's own paths
// mean something only where the lab hands them over.
func rewrite(text string, mounts []mount) string {
	var out strings.Builder
	for i := 0; i < len(text); {
		m, ok := mountAt(text, i, mounts)
		if !ok {
			out.WriteByte(text[i])
			i++
			continue
		}
		out.WriteString(m.host)
		i += len(m.path)
	}
	return out.String()
}

func mountAt(text string, i int, mounts []mount) (mount, bool) {
	if text[i] != '/' || i > 0 && !strings.ContainsRune(pathOpens, rune(text[i-1])) {
		return mount{}, false
	}
	for _, m := range mounts {
		if m.path == "/" || !strings.HasPrefix(text[i:], m.path) {
			continue
		}
		end := i + len(m.path)
		if end == len(text) || strings.IndexByte(pathCloses, text[end]) >= 0 {
			return m, true
		}
	}
	return mount{}, false
}
