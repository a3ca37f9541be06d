package image

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"
)

// HollowName is the built-in image, under any tag, whose containers run as no
// process at all.
const HollowName = "lab/hollow"

// Image is one row of the table.
type Image struct {
	// Name is a repository with a tag or digest, which matches exactly, or
	// with the tag *, which matches every tag and digest and none. A name
	// without a tag means the tag latest, as for any container runtime.
	Name string `json:"name"`
	// Entrypoint is the path of the program inside the image. A container whose
	// command begins with it, or with the name of the executable, runs the
	// executable.
	Entrypoint string `json:"entrypoint,omitempty"`
	// Executable is the program that stands for the image's entrypoint. A
	// relative path is relative to the table; one without a slash is looked up
	// in PATH.
	Executable string `json:"executable,omitempty"`
	// Args are its arguments where the container gives none. $(POD_IP),
	// $(POD_NAME), $(POD_NAMESPACE) and the container's variables are expanded
	// in them and in Env.
	Args []string `json:"args,omitempty"`
	// Env is the image's environment; the container's own wins.
	Env map[string]string `json:"env,omitempty"`
	// Hollow makes the image one of those that run as no process.
	Hollow bool `json:"hollow,omitempty"`
}

// Table maps image names to what runs.
type Table struct {
	Images []Image `json:"images"`
}

var (
	// ErrNotFound says that the table has no such image.
	ErrNotFound = errors.New("not found")
	// ErrName says that a text is no image name.
	ErrName = errors.New("invalid image name")
)

// Parse reads a table from YAML or JSON. dir is what relative executables are
// relative to. Errors name the row and the field.
func Parse(text []byte, dir string) (*Table, error) {
	t := &Table{}
	if err := yaml.UnmarshalStrict(text, t); err != nil {
		return nil, fmt.Errorf("image table: %w", err)
	}
	seen := map[string]int{}
	for i := range t.Images {
		img := &t.Images[i]
		repository, full, err := parseRowName(img.Name)
		if err != nil {
			return nil, fmt.Errorf("image table: images[%d].name: %w", i, err)
		}
		key := repository + " " + full
		if j, ok := seen[key]; ok {
			return nil, fmt.Errorf("image table: images[%d].name: %q is images[%d] already", i, img.Name, j)
		}
		seen[key] = i
		if img.Hollow == (img.Executable != "") {
			return nil, fmt.Errorf("image table: images[%d]: exactly one of executable and hollow must be given", i)
		}
		for k := range img.Env {
			if k == "" || strings.ContainsAny(k, "=\x00") {
				return nil, fmt.Errorf("image table: images[%d].env: %q is not a variable name", i, k)
			}
		}
		if strings.ContainsRune(img.Executable, filepath.Separator) && !filepath.IsAbs(img.Executable) {
			img.Executable = filepath.Join(dir, img.Executable)
		}
	}
	return t, nil
}

// Load reads the table in file. A file that does not exist is an empty table.
func Load(file string) (*Table, error) {
	if file == "" {
		return &Table{}, nil
	}
	text, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return &Table{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("image table: %w", err)
	}
	t, err := Parse(text, filepath.Dir(file))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return t, nil
}

// Lookup finds the row for the image a container names: the exact one, else
// the one with the tag *, else the built-in hollow image. It returns an error
// wrapping [ErrNotFound] where there is none, and one wrapping [ErrName] where
// name is no image name.
func (t *Table) Lookup(name string) (Image, error) {
	named, err := parseName(name)
	if err != nil {
		return Image{}, fmt.Errorf("%w: %w", ErrName, err)
	}
	var wild *Image
	for i := range t.Images {
		repository, full, err := parseRowName(t.Images[i].Name)
		if err != nil {
			continue
		}
		if full == named.String() {
			return t.Images[i], nil
		}
		if full == "" && repository == named.Name() {
			wild = &t.Images[i]
		}
	}
	if wild != nil {
		return *wild, nil
	}
	if named.Name() == "docker.io/"+HollowName {
		return Image{Name: name, Hollow: true}, nil
	}
	return Image{}, fmt.Errorf("%s: %w", named, ErrNotFound)
}
