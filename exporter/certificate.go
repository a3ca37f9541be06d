package exporter

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/util/cert"
)

// TLSConfig names the server's certificate.
type TLSConfig struct {
	// CertFile and KeyFile are PEM files, read again when they change. With
	// both empty the server makes a self-signed certificate when it starts,
	// which scrapers cannot verify.
	CertFile, KeyFile string
	// ReloadInterval is how often the files are looked at, 10 s.
	ReloadInterval time.Duration
}

// certificate holds the certificate in use and replaces it when its files
// change. Files that do not fit together, as in the middle of a rotation, leave
// the old one in place until the next look.
type certificate struct {
	c           TLSConfig
	logger      *slog.Logger
	current     atomic.Pointer[tls.Certificate]
	pem         [2][]byte
	broken      bool
	reads, errs prometheus.Counter
}

func newCertificate(c TLSConfig, reg prometheus.Registerer, logger *slog.Logger) (*certificate, error) {
	if c.ReloadInterval == 0 {
		c.ReloadInterval = 10 * time.Second
	}
	if (c.CertFile == "") != (c.KeyFile == "") {
		return nil, errors.New("TLS: a certificate file needs a key file and the other way round")
	}
	if c.ReloadInterval < 0 {
		return nil, fmt.Errorf("TLS: reload interval %v must be positive", c.ReloadInterval)
	}
	out := &certificate{
		c: c, logger: logger,
		// The names of controller-runtime.
		reads: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "certwatcher_read_certificate_total", Help: "Times the server's certificate was read because its files changed.",
		}),
		errs: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "certwatcher_read_certificate_errors_total", Help: "Times the server's certificate could not be read, whereupon the old one stayed in use.",
		}),
	}
	if c.CertFile == "" {
		certPEM, keyPEM, err := cert.GenerateSelfSignedCertKey("localhost", nil, nil)
		if err != nil {
			return nil, fmt.Errorf("making a self-signed certificate: %w", err)
		}
		pair, err := tls.X509KeyPair(certPEM, keyPEM)
		if err != nil {
			return nil, fmt.Errorf("reading the self-signed certificate: %w", err)
		}
		out.current.Store(&pair)
		logger.Warn("The metrics server uses a self-signed certificate, which scrapers cannot verify")
	} else if err := out.read(); err != nil {
		return nil, err
	}
	if reg != nil {
		if err := register(reg, "the certificate's metrics", []prometheus.Collector{out.reads, out.errs}); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// read reads the files and takes them into use if they changed and fit.
func (c *certificate) read() error {
	var pem [2][]byte
	for i, name := range []string{c.c.CertFile, c.c.KeyFile} {
		b, err := os.ReadFile(name)
		if err != nil {
			return fmt.Errorf("reading the server's certificate: %w", err)
		}
		pem[i] = b
	}
	if bytes.Equal(pem[0], c.pem[0]) && bytes.Equal(pem[1], c.pem[1]) {
		return nil
	}
	pair, err := tls.X509KeyPair(pem[0], pem[1])
	if err != nil {
		return fmt.Errorf("reading the server's certificate from %s and %s: %w", c.c.CertFile, c.c.KeyFile, err)
	}
	c.pem = pem
	c.current.Store(&pair)
	c.reads.Inc()
	return nil
}

// run looks at the files until ctx is done.
func (c *certificate) run(ctx context.Context) {
	if c.c.CertFile == "" {
		return
	}
	ticker := time.NewTicker(c.c.ReloadInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		before := c.current.Load()
		err := c.read()
		switch {
		case err != nil:
			c.errs.Inc()
			if !c.broken {
				c.logger.ErrorContext(ctx, "The metrics server's certificate cannot be read again, the old one stays in use", "err", err)
			}
		case c.current.Load() != before:
			c.logger.InfoContext(ctx, "The metrics server has a new certificate", "notAfter", c.current.Load().Leaf.NotAfter)
		}
		c.broken = err != nil
	}
}

func (c *certificate) tlsConfig() *tls.Config {
	return &tls.Config{
		MinVersion:     tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.current.Load(), nil },
	}
}
