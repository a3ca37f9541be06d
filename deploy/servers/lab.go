package servers

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// labGrace is how long a lab may take to stop in order.
const labGrace = time.Minute

// Image is one row of a lab's image table: what runs when a container names
// an image. The lab's own documentation has the details.
type Image struct {
	// Name is an image name with a tag, or with the tag * for every tag.
	Name string `json:"name"`
	// Executable is the program, an absolute path or a name on PATH, and
	// Entrypoint the path a container's command has for it.
	Executable string `json:"executable,omitempty"`
	Entrypoint string `json:"entrypoint,omitempty"`
	// Args and Env are the image's; $(POD_IP), $(POD_NAME) and
	// $(POD_NAMESPACE) are expanded in them.
	Args []string          `json:"args,omitempty"`
	Env  map[string]string `json:"env,omitempty"`
	// Hollow: the image's containers run as no process.
	Hollow bool `json:"hollow,omitempty"`
}

// LabOptions say what lab to start.
type LabOptions struct {
	// Options say where the program comes from.
	Options
	// Name is the cluster's name and its nodes' prefix. Default: lab.
	Name string
	// Nodes is the number of nodes. Default: 1.
	Nodes int
	// Images is the image table to begin with.
	Images []Image
	// Audit has the API server write an audit log.
	Audit bool
	// MaxRestartPeriod caps the back-off of containers and image pulls, at
	// least 1 s. Default: 5 minutes, as for a kubelet.
	MaxRestartPeriod time.Duration
	// Dir is the lab's directory. Default: a temporary one, removed by Stop.
	Dir string
	// Kubeconfig is a file to write the kubeconfig to besides.
	Kubeconfig string
	// Port is the API server's port. Default: a free one.
	Port int
	// Output gets the lab's progress as well.
	Output io.Writer
}

// Lab is a running lab.
type Lab struct {
	*Proc
	// Kubeconfig is the file with the administrator's credentials.
	Kubeconfig string
	// Dir is the lab's directory.
	Dir string
	// AuditLog is the audit log's file, if asked for.
	AuditLog string
	// Program is the lab's program, which is kubectl too.
	Program string

	imagesFile string
	mu         sync.Mutex
	images     []Image
}

// StartLab starts a lab and returns when pods can be created. ctx bounds the
// start only; Stop ends it.
func StartLab(ctx context.Context, opts LabOptions) (_ *Lab, err error) {
	program, err := Ensure(ctx, LabServer, opts.Options)
	if err != nil {
		return nil, err
	}
	base, remove, err := workDir("", LabServer.Name)
	if err != nil {
		return nil, fmt.Errorf("starting the lab: %w", err)
	}
	defer func() {
		if err != nil {
			_ = remove()
		}
	}()
	l := &Lab{Program: program, Dir: opts.Dir, imagesFile: filepath.Join(base, "images.json")}
	if l.Dir == "" {
		l.Dir = filepath.Join(base, "lab")
	}
	if l.Dir, err = filepath.Abs(l.Dir); err != nil {
		return nil, err
	}
	if err := l.SetImages(opts.Images); err != nil {
		return nil, err
	}
	if opts.Audit {
		l.AuditLog = filepath.Join(base, "audit.log")
	}
	lines := &firstLine{line: make(chan string, 1)}
	cmd := exec.Command(program, l.upArgs(opts)...)
	cmd.Stdout = lines
	log := filepath.Join(base, "lab.log")
	l.Proc, err = start(LabServer.Name, log, cmd, labGrace, func() error {
		return errors.Join(l.down(), remove())
	})
	if err != nil {
		return nil, err
	}
	stopFollowing := follow(log, opts.Output)
	defer stopFollowing()
	select {
	case l.Kubeconfig = <-lines.line:
		return l, nil
	case <-l.Done():
		err = fmt.Errorf("the lab ended (%w):\n%s", l.ended(), l.logTail())
	case <-ctx.Done():
		err = fmt.Errorf("waiting for the lab: %w:\n%s", context.Cause(ctx), l.logTail())
	}
	return nil, errors.Join(err, l.Stop())
}

func (l *Lab) upArgs(opts LabOptions) []string {
	args := []string{"up", "--dir=" + l.Dir, "--images=" + l.imagesFile}
	if opts.Name != "" {
		args = append(args, "--name="+opts.Name)
	}
	if opts.Nodes > 0 {
		args = append(args, "--nodes="+strconv.Itoa(opts.Nodes))
	}
	if opts.Port > 0 {
		args = append(args, "--port="+strconv.Itoa(opts.Port))
	}
	if opts.MaxRestartPeriod > 0 {
		args = append(args, "--max-restart-period="+opts.MaxRestartPeriod.String())
	}
	if opts.Kubeconfig != "" {
		args = append(args, "--kubeconfig="+opts.Kubeconfig)
	}
	if l.AuditLog != "" {
		args = append(args, "--audit-log="+l.AuditLog)
	}
	return args
}

// down removes what is left of a lab that has ended.
func (l *Lab) down() error {
	_, err := l.run(context.Background(), "down", "--dir="+l.Dir)
	return err
}

// run runs a command of the lab and returns its output.
func (l *Lab) run(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, l.Program, args...)
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("lab %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(complaint.String()))
	}
	return out.String(), nil
}

// RestartAPIServer restarts the API server on the same port with the same
// data and returns when it serves again. With kill it gets SIGKILL.
func (l *Lab) RestartAPIServer(ctx context.Context, kill bool) error {
	_, err := l.run(ctx, "restart", "apiserver", "--dir="+l.Dir, "--kill="+strconv.FormatBool(kill))
	return err
}

// Kubectl runs kubectl as the administrator and returns its output.
func (l *Lab) Kubectl(ctx context.Context, args ...string) (string, error) {
	return l.run(ctx, append([]string{"kubectl", "--dir=" + l.Dir, "--"}, args...)...)
}

// Logs returns the output of a container's latest run, the API server being
// there or not. The container may be empty where the pod has one only.
func (l *Lab) Logs(ctx context.Context, namespace, pod, container string) (string, error) {
	return l.run(ctx, "logs", pod, "--dir="+l.Dir, "--namespace="+namespace, "--container="+container)
}

// SetImages replaces the image table. It holds from the next start of a
// container on.
func (l *Lab) SetImages(images []Image) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.writeImages(images)
}

// AddImages puts rows into the image table, each in place of one of its name.
func (l *Lab) AddImages(images ...Image) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	next := slices.Clone(l.images)
	for _, img := range images {
		next = slices.DeleteFunc(next, func(old Image) bool { return old.Name == img.Name })
		next = append(next, img)
	}
	return l.writeImages(next)
}

func (l *Lab) writeImages(images []Image) error {
	text, err := json.MarshalIndent(map[string][]Image{"images": slices.Clone(images)}, "", "  ")
	if err != nil {
		return err
	}
	next := l.imagesFile + ".next"
	if err := os.WriteFile(next, text, 0o644); err != nil {
		return fmt.Errorf("writing the image table: %w", err)
	}
	if err := os.Rename(next, l.imagesFile); err != nil {
		return fmt.Errorf("writing the image table: %w", err)
	}
	l.images = slices.Clone(images)
	return nil
}

// firstLine passes the first line written to it on and drops the rest.
type firstLine struct {
	line chan string
	text []byte
	sent bool
}

func (f *firstLine) Write(text []byte) (int, error) {
	if !f.sent {
		f.text = append(f.text, text...)
		if line, _, ok := bytes.Cut(f.text, []byte("\n")); ok {
			f.sent = true
			f.line <- string(line)
		}
	}
	return len(text), nil
}

// follow copies a log to out, line by line, until the returned function is
// called.
func follow(log string, out io.Writer) (stop func()) {
	if out == nil {
		return func() {}
	}
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		file, err := os.Open(log)
		if err != nil {
			return
		}
		defer file.Close()
		reader := bufio.NewReader(file)
		var rest string
		for last := false; ; {
			line, err := reader.ReadString('\n')
			rest += line
			if err == nil {
				fmt.Fprint(out, rest)
				rest = ""
				continue
			}
			if last {
				return
			}
			select {
			case <-quit:
				last = true
			case <-time.After(readyPeriod):
			}
		}
	}()
	return func() {
		close(quit)
		<-done
	}
}
