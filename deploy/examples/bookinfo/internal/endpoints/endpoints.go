package endpoints

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"github.com/canarycontroller/canary-controller/middleware/outlier"
)

// filePrefix marks a specification that names a file of addresses.
const filePrefix = "file:"

// Parse reads where a service is:
//
//	reviews:9080                    a name, all of whose addresses are used
//	10.0.0.1:9080,10.0.0.2:9080     a list
//	file:/run/reviews               a file with one host:port a line, read
//	                                again and again; "#" begins a comment
func Parse(spec string) (outlier.Resolver, error) {
	if spec == "" {
		return nil, errors.New("endpoints: empty: must be host:port, a list of them, or file:PATH")
	}
	if path, ok := strings.CutPrefix(spec, filePrefix); ok {
		if path == "" {
			return nil, errors.New("endpoints: file: the path is missing")
		}
		return file(path), nil
	}
	list, err := addresses(strings.ReplaceAll(spec, ",", "\n"))
	if err != nil {
		return nil, err
	}
	if len(list) == 1 {
		if host, _, err := net.SplitHostPort(list[0]); err == nil && net.ParseIP(host) == nil {
			return outlier.DNS(list[0], nil), nil
		}
	}
	return outlier.Static(list...), nil
}

// addresses reads one host:port a line.
func addresses(text string) ([]string, error) {
	var out []string
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		host, port, err := net.SplitHostPort(line)
		if err != nil || host == "" || port == "" {
			return nil, fmt.Errorf("endpoints: %q: must be host:port", line)
		}
		out = append(out, line)
	}
	return out, nil
}

// file is read at every look-up. A file that is missing or broken is an error,
// which keeps the addresses known before; an empty one means none.
type file string

func (f file) Resolve(context.Context) ([]string, error) {
	text, err := os.ReadFile(string(f))
	if err != nil {
		return nil, fmt.Errorf("endpoints: %w", err)
	}
	list, err := addresses(string(text))
	if err != nil {
		return nil, fmt.Errorf("endpoints: file %s: %w", string(f), err)
	}
	return list, nil
}
