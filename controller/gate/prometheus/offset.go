package prometheus

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"
	"go.yaml.in/yaml/v3"
)

// offsetKept is how long a server's query offset is believed.
const offsetKept = 10 * time.Minute

// queryOffset is how far back a server's rules look (rule_query_offset), so that an alert
// that is quiet now was so that long ago. The API tells the global setting only, not that
// of single groups, and only where the configuration may be read.
type queryOffset struct {
	mu    sync.Mutex
	value time.Duration
	read  time.Time
}

// queryOffset returns the setting of the server, 0 where it does not tell.
func (t *target) queryOffset(ctx context.Context) time.Duration {
	if t.refused != nil {
		return 0
	}
	o := &t.turns.offset
	if value, ok := o.known(); ok {
		return value
	}
	release, err := t.turn(ctx)
	if err != nil {
		return 0
	}
	defer release()
	bounded, cancel := context.WithTimeout(ctx, t.timeout)
	defer cancel()
	config, err := t.api.Config(bounded)
	var refused *promv1.Error
	if err != nil && !(errors.As(err, &refused) && refused.Type == promv1.ErrClient) {
		// Nothing is learned from an outage.
		value, _ := o.known()
		return value
	}
	var value time.Duration
	if err == nil {
		value, err = parseQueryOffset(config.YAML)
	}
	if err != nil {
		_, text := explain(err, t.timeout)
		t.config.Logger.DebugContext(ctx, "The query offset of rules is not known and taken to be 0", "prometheus", t.name, "err", t.credentials.redact(text))
	}
	o.learn(value)
	return value
}

func (o *queryOffset) known() (time.Duration, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.value, !o.read.IsZero() && time.Since(o.read) < offsetKept
}

func (o *queryOffset) learn(value time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.value, o.read = value, time.Now()
}

// parseQueryOffset reads the configuration of a Prometheus.
func parseQueryOffset(config string) (time.Duration, error) {
	var c struct {
		Global struct {
			Offset string `yaml:"rule_query_offset"`
		} `yaml:"global"`
	}
	if err := yaml.Unmarshal([]byte(config), &c); err != nil {
		return 0, fmt.Errorf("reading the configuration: %w", err)
	}
	if c.Global.Offset == "" {
		return 0, nil
	}
	d, err := model.ParseDuration(c.Global.Offset)
	if err != nil {
		return 0, fmt.Errorf("reading rule_query_offset: %w", err)
	}
	return time.Duration(d), nil
}
