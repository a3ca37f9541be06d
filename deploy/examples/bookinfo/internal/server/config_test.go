package server

import (
	"strings"
	"testing"
	"time"
)

func TestConfigFromEnv(t *testing.T) {
	get := func(vars map[string]string) func(string) string { return func(n string) string { return vars[n] } }
	c, err := ConfigFromEnv("reviews", get(nil))
	if err != nil || c.Address != ":9080" || c.AdminAddress != ":9090" || c.Version != "v1" || c.ServiceName != "reviews" || c.Exports || c.ShutdownTimeout != 10*time.Second {
		t.Errorf("defaults %+v %v", c, err)
	}
	c, err = ConfigFromEnv("reviews", get(map[string]string{
		"POD_IP": "127.10.0.7", "PORT": "8080", "ADMIN_ADDR": "127.0.0.1:7000", "VERSION": "v2", "OTEL_SERVICE_NAME": "reviews.prod",
		"OTEL_TRACES_EXPORTER": "jaeger", "SHUTDOWN_DELAY": "2s",
	}))
	if err != nil || c.Address != "127.10.0.7:8080" || c.AdminAddress != "127.0.0.1:7000" || c.Version != "v2" || c.ServiceName != "reviews.prod" || !c.Exports || c.ShutdownDelay != 2*time.Second {
		t.Errorf("given %+v %v", c, err)
	}
	for name, value := range map[string]string{
		"ADDR": "9080", "PORT": "http", "ADMIN_PORT": "-1", "SHUTDOWN_DELAY": "-1s", "SHUTDOWN_TIMEOUT": "soon", "FAULT_ERROR_PERCENT": "x",
	} {
		if _, err := ConfigFromEnv("reviews", get(map[string]string{name: value})); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s=%s: error %v does not name it", name, value, err)
		}
	}
}
