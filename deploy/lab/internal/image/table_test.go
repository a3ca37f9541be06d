package image

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

const digest64 = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

func TestLookup(t *testing.T) {
	table, err := Parse([]byte(`
images:
- {name: "go-hello:*", executable: /any}
- {name: "go-hello:v2", executable: /two}
- {name: web, executable: ./bin/web, args: [a], env: {K: v}}
- {name: "registry.example.com:5000/team/app:1.0", executable: app}
- {name: "slow:1", hollow: true}
`), "/tables")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"go-hello:v1": "/any", "go-hello": "/any", "go-hello@" + digest64: "/any", "docker.io/library/go-hello:x": "/any",
		"go-hello:v2": "/two", "web:latest": "/tables/bin/web", "docker.io/web": "", "web": "/tables/bin/web",
		"registry.example.com:5000/team/app:1.0": "app",
	} {
		img, err := table.Lookup(name)
		if name == "docker.io/web" {
			want = "/tables/bin/web"
		}
		if err != nil || img.Executable != want {
			t.Errorf("%s: %+v, %v; want %s", name, img, err, want)
		}
	}
	for _, name := range []string{"lab/hollow", "lab/hollow:7", "docker.io/lab/hollow:x", "slow:1"} {
		if img, err := table.Lookup(name); err != nil || !img.Hollow {
			t.Errorf("%s: %+v, %v; want a hollow image", name, img, err)
		}
	}
	for _, name := range []string{"nope", "web:2", "registry.example.com:5000/team/app:2.0", "registry.example.com/team/app:1.0", "slow"} {
		if img, err := table.Lookup(name); !errors.Is(err, ErrNotFound) {
			t.Errorf("%s: %+v, %v; want not found", name, img, err)
		}
	}
	for _, name := range []string{"", "UPPER", "a b", "a:", "a@sha256:12", "a::b", "/a"} {
		if img, err := table.Lookup(name); !errors.Is(err, ErrName) {
			t.Errorf("%q: %+v, %v; want an invalid name", name, img, err)
		}
	}
}

func TestParseErrors(t *testing.T) {
	for text, want := range map[string]string{
		"images: [{name: A, executable: x}]":                                   "images[0].name",
		"images: [{name: a}]":                                                  "images[0]: exactly one of executable and hollow",
		"images: [{name: a, executable: x, hollow: true}]":                     "images[0]: exactly one of executable and hollow",
		"images: [{name: a, executable: x}, {name: 'a:latest', hollow: true}]": "images[1].name: \"a:latest\" is images[0] already",
		"images: [{name: a, executable: x, env: {'A=B': c}}]":                  "images[0].env",
		"images: [{name: a, exec: x}]":                                         "unknown field",
		"images: {}":                                                           "image table",
		"images: [{name: 'a:b:*', executable: x}]":                             "images[0].name",
	} {
		if _, err := Parse([]byte(text), "/"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one with %q", text, err, want)
		}
	}
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "images.yaml")
	if table, err := Load(file); err != nil || len(table.Images) != 0 {
		t.Errorf("a missing file: %+v, %v; want an empty table", table, err)
	}
	if err := os.WriteFile(file, []byte(`{"images":[{"name":"a","executable":"./a"}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	table, err := Load(file)
	if err != nil || table.Images[0].Executable != filepath.Join(dir, "a") {
		t.Errorf("%+v, %v; want the executable beside the table", table, err)
	}
	if err := os.WriteFile(file, []byte("images: ["), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(file); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("error %v, want one that names %s", err, file)
	}
}

// A table that parses can be looked up by every name in it, and survives
// being written and parsed again.
func FuzzParse(f *testing.F) {
	f.Add([]byte("images:\n- {name: 'a:*', executable: x}\n- {name: b, hollow: true}\n"))
	f.Add([]byte(`{"images":[{"name":"r.io:5000/a/b:c","executable":"/x","args":["1"],"env":{"K":"V"}}]}`))
	f.Add([]byte("images: [{name: 'a@" + digest64 + "', executable: x}]"))
	f.Fuzz(func(t *testing.T, text []byte) {
		table, err := Parse(text, "/t")
		if err != nil {
			return
		}
		for _, img := range table.Images {
			name := strings.TrimSuffix(img.Name, ":"+anyTag)
			if got, err := table.Lookup(name); err != nil || got.Executable != img.Executable && !strings.HasSuffix(img.Name, anyTag) {
				t.Errorf("row %+v is found as %+v, %v", img, got, err)
			}
		}
		again, err := yaml.Marshal(table)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Parse(again, "/t"); err != nil {
			t.Errorf("written again: %v", err)
		}
	})
}
