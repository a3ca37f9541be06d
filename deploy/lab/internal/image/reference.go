package image

import (
	"fmt"
	"strings"

	"github.com/distribution/reference"
)

// anyTag is the tag of a row that stands for every tag and digest.
const anyTag = "*"

// parseName gives an image name its full form, as container runtimes do:
// docker.io/library/ before a bare name, the tag latest where there is none.
func parseName(name string) (reference.Named, error) {
	named, err := reference.ParseNormalizedNamed(name)
	if err != nil {
		return nil, fmt.Errorf("couldn't parse image name %q: %w", name, err)
	}
	return reference.TagNameOnly(named), nil
}

// parseRowName splits a row's name into its repository and, unless it stands
// for every tag, its full form.
func parseRowName(name string) (repository, full string, err error) {
	bare, any := strings.CutSuffix(name, ":"+anyTag)
	named, err := parseName(bare)
	if err != nil {
		return "", "", err
	}
	if any {
		if strings.Contains(bare[strings.LastIndexByte(bare, '/')+1:], ":") || strings.Contains(bare, "@") {
			return "", "", fmt.Errorf("couldn't parse image name %q: two tags", name)
		}
		return named.Name(), "", nil
	}
	return named.Name(), named.String(), nil
}
