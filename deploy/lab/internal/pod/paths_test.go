package pod

import (
	"strings"
	"testing"
)

func TestRewrite(t *testing.T) {
	mounts := []mount{{"/etc/app", "/h/app"}, {"/etc/app/sub", "/h/sub"}, {"/data", "/h/data"}, {"/", "/h/root"}}
	sortMounts(mounts)
	for text, want := range map[string]string{
		"":                                "",
		"/etc/app":                        "/h/app",
		"/etc/app/config.yaml":            "/h/app/config.yaml",
		"/etc/app/sub/x":                  "/h/sub/x",
		"/etc/application":                "/etc/application",
		"/etc/app2/x":                     "/etc/app2/x",
		"--config=/etc/app/config.yaml":   "--config=/h/app/config.yaml",
		"/data:/etc/app":                  "/h/data:/h/app",
		"sh -c 'cat /data/x; ls /data'":   "sh -c 'cat /h/data/x; ls /h/data'",
		"http://127.0.0.1:80/data/x":      "http://127.0.0.1:80/data/x",
		"/var/data":                       "/var/data",
		"file=/data,other=/etc/app/sub/y": "file=/h/data,other=/h/sub/y",
		"/usr/bin":                        "/usr/bin",
	} {
		if got := rewrite(text, mounts); got != want {
			t.Errorf("rewrite(%q) = %q, want %q", text, got, want)
		}
	}
}

func FuzzRewrite(f *testing.F) {
	f.Add("--config=/etc/app/config.yaml", "/etc/app")
	f.Add("/data:/data", "/data")
	f.Add("/", "/")
	f.Fuzz(func(t *testing.T, text, path string) {
		if !strings.HasPrefix(path, "/") {
			t.Skip("a mount path is absolute: the API server sees to it")
		}
		same := rewrite(text, []mount{{path, path}})
		if same != text {
			t.Errorf("rewriting %q to itself changes %q to %q", path, text, same)
		}
		if got := rewrite(text, nil); got != text {
			t.Errorf("without mounts %q becomes %q", text, got)
		}
		if path != "/" && rewrite(path, []mount{{path, "/host"}}) != "/host" {
			t.Errorf("the mount path %q itself is not rewritten", path)
		}
	})
}
