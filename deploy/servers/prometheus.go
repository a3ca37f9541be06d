package servers

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// PrometheusOptions say what Prometheus to start.
type PrometheusOptions struct {
	// Options say where the program comes from.
	Options
	// Config is the text of the configuration file. Relative paths in it are
	// relative to Dir.
	Config string
	// Dir holds its configuration, data and log. Default: a temporary
	// directory, removed by Stop.
	Dir string
	// Address is where it listens, host:port. Default: a free one.
	Address string
	// Flags are further flags.
	Flags []string
}

// PrometheusServer is a running Prometheus.
type PrometheusServer struct {
	*Proc
	// URL is its address as a client has it, without a slash at the end.
	URL string
	// Dir is where the configuration, data and log are.
	Dir string
}

// StartPrometheus starts a Prometheus and returns when it is ready. ctx bounds
// the start only; Stop ends it.
func StartPrometheus(ctx context.Context, opts PrometheusOptions) (_ *PrometheusServer, err error) {
	program, err := Ensure(ctx, Prometheus, opts.Options)
	if err != nil {
		return nil, err
	}
	dir, remove, err := workDir(opts.Dir, Prometheus.Name)
	if err != nil {
		return nil, fmt.Errorf("starting prometheus: %w", err)
	}
	defer func() {
		if err != nil && remove != nil {
			_ = remove()
		}
	}()
	address := opts.Address
	if address == "" {
		free, err := freeAddresses(1)
		if err != nil {
			return nil, err
		}
		address = free[0]
	}
	p := &PrometheusServer{URL: "http://" + address, Dir: dir}
	if err := os.WriteFile(p.configFile(), []byte(opts.Config), 0o644); err != nil {
		return nil, fmt.Errorf("starting prometheus: %w", err)
	}
	args := append([]string{
		"--config.file=" + p.configFile(),
		"--storage.tsdb.path=" + filepath.Join(dir, "data"),
		"--web.listen-address=" + address,
		"--web.enable-lifecycle",
	}, opts.Flags...)
	p.Proc, err = start(Prometheus.Name, filepath.Join(dir, "prometheus.log"), exec.Command(program, args...), 30*time.Second, remove)
	if err != nil {
		return nil, err
	}
	if err := p.waitReady(ctx, func(ctx context.Context) error { return get(ctx, p.URL+"/-/ready") }); err != nil {
		_ = p.Stop()
		return nil, err
	}
	return p, nil
}

func (p *PrometheusServer) configFile() string { return filepath.Join(p.Dir, "prometheus.yml") }

// SetConfig replaces the configuration and has it loaded. An error of the
// configuration is returned.
func (p *PrometheusServer) SetConfig(ctx context.Context, config string) error {
	if err := os.WriteFile(p.configFile(), []byte(config), 0o644); err != nil {
		return err
	}
	return p.Reload(ctx)
}

// Reload has the configuration and the rule files loaded again.
func (p *PrometheusServer) Reload(ctx context.Context) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, p.URL+"/-/reload", nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("reloading prometheus: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		text := make([]byte, maxLogTail)
		n, _ := response.Body.Read(text)
		return fmt.Errorf("reloading prometheus: %s: %s", response.Status, text[:n])
	}
	return nil
}
