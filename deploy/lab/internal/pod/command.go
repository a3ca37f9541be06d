package pod

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/third_party/forked/golang/expansion"

	"github.com/canarycontroller/canary-controller/deploy/lab/internal/image"
)

// plan is how to run one container as a process.
type plan struct {
	image   image.Image
	command []string // the program's path first
	env     map[string]string
	dir     string
	mounts  []mount
	// terminationLog stands for the container's termination message file.
	terminationLog string
	logs           string
}

// environ is the environment for exec.
func (p *plan) environ() []string {
	env := make([]string, 0, len(p.env))
	for k, v := range p.env {
		env = append(env, k+"="+rewrite(v, p.mounts))
	}
	return env
}

// arguments is the command line of a container as the API defines it: its
// command replaces the image's program and arguments, its args the image's
// arguments, and $(VAR) references are expanded.
func arguments(c *corev1.Container, img image.Image, env map[string]string) []string {
	line := append([]string{}, c.Command...)
	if len(c.Command) == 0 {
		line = append(line, img.Executable)
	}
	switch {
	case len(c.Args) > 0:
		line = append(line, c.Args...)
	case len(c.Command) == 0:
		line = append(line, img.Args...)
	}
	mapping := expansion.MappingFuncFor(env)
	for i := range line {
		line[i] = expansion.Expand(line[i], mapping)
	}
	return line
}

// resolve finds the program that the first word of a command line names: the
// image's own, or one of this machine.
func resolve(word string, img image.Image, mounts []mount) (string, error) {
	if word == img.Executable || img.Entrypoint != "" && word == img.Entrypoint ||
		filepath.Base(word) == filepath.Base(img.Executable) {
		return lookPath(img.Executable)
	}
	return lookPath(rewrite(word, mounts))
}

func lookPath(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		return "", err
	}
	return filepath.Abs(path)
}

// searchPath is the PATH of containers where neither image nor pod sets one.
func searchPath() string {
	if path := os.Getenv("PATH"); path != "" {
		return path
	}
	return "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
}

// finish completes a plan whose environment and mounts are known.
func (p *plan) finish(c *corev1.Container) error {
	line := arguments(c, p.image, p.env)
	program, err := resolve(line[0], p.image, p.mounts)
	if err != nil {
		return fmt.Errorf("unable to start container process: exec: %q: %w", line[0], err)
	}
	p.command = append(p.command, program)
	for _, a := range line[1:] {
		p.command = append(p.command, rewrite(a, p.mounts))
	}
	if c.WorkingDir != "" {
		dir := rewrite(c.WorkingDir, p.mounts)
		if dir != c.WorkingDir || strings.HasPrefix(dir, p.dir) {
			p.dir = dir
		} else if info, err := os.Stat(dir); err == nil && info.IsDir() {
			p.dir = dir
		}
	}
	return nil
}
