package main

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"
)

func TestDefaults(t *testing.T) {
	o, err := parse(nil, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if !o.election.enabled || o.election.lease != 15*time.Second || o.workers != 4 || o.namespace != "" ||
		o.metrics.address != "127.0.0.1:8080" || o.healthAddr != ":8081" || o.logFormat != "text" {
		t.Errorf("defaults are %+v", o)
	}
}

func TestBadFlagsNameTheFlag(t *testing.T) {
	for args, want := range map[string]string{
		"--workers=0":                      "--workers is 0, it must be at least 1",
		"--workers=many":                   `"--workers" flag`,
		"--kube-api-qps=0":                 "--kube-api-qps is 0, it must be positive",
		"--kube-api-burst=0":               "--kube-api-burst is 0",
		"--resync=-1s":                     "--resync is -1s",
		"--log-format=xml":                 `--log-format is "xml", it must be text or json`,
		"--v=10":                           "--v is 10",
		"--leader-elect-lease-duration=1s": "--leader-elect-lease-duration (1s) must be at least 1s and longer",
		"--leader-elect-renew-deadline=2s --leader-elect-retry-period=1900ms": "longer than 1.2 times",
		"--leader-election-id=":                              "--leader-election-id must not be empty",
		"--kube-api-qps=NaN":                                 "--kube-api-qps is NaN",
		"--metrics-tls-cert-file=a":                          "--metrics-tls-cert-file and --metrics-tls-key-file go together",
		"--metrics-tls-cert-file=a --metrics-tls-key-file=b": "needs --metrics-secure",
		"--outlier-source=magic":                             "--outlier-source",
		"--outlier-source=prometheus":                        "needs --prometheus-url",
		"--gate-query-timeout=61s":                           "--gate-query-timeout is 1m1s, it must be above 0 and at most 1m",
		"--gate-workers=0":                                   "--gate-workers is 0, it must be at least 1",
		"--nonsense":                                         "unknown flag: --nonsense",
		"run":                                                `unexpected argument "run"`,
	} {
		if _, err := parse(strings.Fields(args), io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", args, err, want)
		}
	}
}

func TestLogFormat(t *testing.T) {
	o, err := parse([]string{"--log-format", "json", "--v", "2"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	logger := o.logger(&out)
	logger.V(2).Info("shown", "canary", "prod/release")
	logger.V(3).Info("hidden")
	var line struct{ Msg, Canary string }
	if err := json.Unmarshal(out.Bytes(), &line); err != nil || line.Msg != "shown" || line.Canary != "prod/release" {
		t.Errorf("logged %s (%v)", out.String(), err)
	}
}
