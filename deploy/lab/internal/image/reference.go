package image

import (
	"fmt"
	"regexp"
	"strings"
)

// The grammar of an image name, after github.com/distribution/reference: path
// components of lower-case letters and digits, a host that may have a port, a
// tag of at most 128 characters, a digest.
var (
	component  = `[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*`
	host       = `(?:[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?)(?:\.[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?)*(?::[0-9]+)?`
	repository = regexp.MustCompile(`^(?:` + host + `/)?` + component + `(?:/` + component + `)*$`)
	tag        = regexp.MustCompile(`^(?:\*|[\w][\w.-]{0,127})$`)
	digest     = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,}$`)
)

// reference is a parsed image name. docker.io and its library/ are implied, as
// they are for a container runtime, and left out.
type reference struct {
	repository, tag, digest string
}

func (r reference) String() string {
	s := r.repository
	if r.tag != "" {
		s += ":" + r.tag
	}
	if r.digest != "" {
		s += "@" + r.digest
	}
	return s
}

func parseReference(name string) (reference, error) {
	var r reference
	rest, dig, hasDigest := strings.Cut(name, "@")
	if hasDigest {
		if !digest.MatchString(dig) {
			return reference{}, fmt.Errorf("couldn't parse image name %q: invalid reference format", name)
		}
		r.digest = dig
	}
	if i := strings.LastIndexByte(rest, ':'); i > strings.LastIndexByte(rest, '/') {
		r.tag = rest[i+1:]
		rest = rest[:i]
		if !tag.MatchString(r.tag) {
			return reference{}, fmt.Errorf("couldn't parse image name %q: invalid reference format", name)
		}
	}
	if len(rest) > 255 || !repository.MatchString(rest) {
		return reference{}, fmt.Errorf("couldn't parse image name %q: invalid reference format", name)
	}
	rest = strings.TrimPrefix(rest, "docker.io/")
	r.repository = strings.TrimPrefix(rest, "library/")
	if r.tag == "" && r.digest == "" {
		r.tag = "latest"
	}
	return r, nil
}
