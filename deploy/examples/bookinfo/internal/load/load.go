package load

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// Config says what to send. Validate checks it.
type Config struct {
	URLs        []string      // asked in turn
	Rate        float64       // requests a second, up to 10000
	Duration    time.Duration // zero: until the context ends
	Requests    int           // zero: no limit
	Concurrency int           // requests under way at most; those above are skipped and counted
	Timeout     time.Duration // of one request
	Report      time.Duration // between two lines in the log; zero: only at the end
}

// Validate names the field that is wrong and its rule.
func (c Config) Validate() error {
	switch {
	case len(c.URLs) == 0:
		return errors.New("load: no URL given")
	case !(c.Rate > 0 && c.Rate <= 10000):
		return fmt.Errorf("load: rate %v: must be over 0 and at most 10000 requests a second", c.Rate)
	case c.Concurrency < 1 || c.Concurrency > 1000:
		return fmt.Errorf("load: concurrency %d: must be 1 to 1000", c.Concurrency)
	case c.Timeout <= 0:
		return fmt.Errorf("load: timeout %s: must be over 0", c.Timeout)
	case c.Duration < 0 || c.Requests < 0 || c.Report < 0:
		return errors.New("load: duration, requests and report must not be negative")
	}
	for _, u := range c.URLs {
		if _, err := http.NewRequest(http.MethodGet, u, http.NoBody); err != nil {
			return fmt.Errorf("load: URL: %w", err)
		}
	}
	return nil
}

// Result counts what came back.
type Result struct {
	Sent    int64            // requests made
	Skipped int64            // not made, because too many were under way
	Failed  int64            // no answer: refused, timed out, broken off
	Status  map[string]int64 // answers by class: 2xx, 3xx, 4xx, 5xx
}

type counts struct {
	sent, skipped, failed atomic.Int64
	class                 [6]atomic.Int64
}

func (c *counts) result() Result {
	r := Result{Sent: c.sent.Load(), Skipped: c.skipped.Load(), Failed: c.failed.Load(), Status: map[string]int64{}}
	for i := 1; i < len(c.class); i++ {
		if n := c.class[i].Load(); n > 0 {
			r.Status[fmt.Sprintf("%dxx", i)] = n
		}
	}
	return r
}

// Run sends until the duration, the number of requests or ctx ends, and waits
// for the requests under way. The rate does not depend on how fast answers
// come: a slow service gets no fewer requests, up to the bound.
func Run(ctx context.Context, client *http.Client, c Config, log *slog.Logger) (Result, error) {
	if err := c.Validate(); err != nil {
		return Result{}, err
	}
	sending := ctx
	if c.Duration > 0 {
		var cancel context.CancelFunc
		sending, cancel = context.WithTimeout(ctx, c.Duration)
		defer cancel()
	}
	var (
		n     counts
		under sync.WaitGroup
		slots = make(chan struct{}, c.Concurrency)
		tick  = time.NewTicker(max(time.Duration(float64(time.Second)/c.Rate), time.Microsecond))
		lines <-chan time.Time
	)
	defer tick.Stop()
	if c.Report > 0 {
		t := time.NewTicker(c.Report)
		defer t.Stop()
		lines = t.C
	}
	next := rand.IntN(len(c.URLs))
	for i := 0; c.Requests == 0 || i < c.Requests; {
		select {
		case <-sending.Done():
			under.Wait()
			return n.result(), nil
		case <-lines:
			log.InfoContext(ctx, "load", "result", n.result())
		case <-tick.C:
			i++
			url := c.URLs[next%len(c.URLs)]
			next++
			select {
			case slots <- struct{}{}:
			default:
				n.skipped.Add(1)
				continue
			}
			under.Go(func() {
				defer func() { <-slots }()
				n.send(ctx, client, url, c.Timeout)
			})
		}
	}
	under.Wait()
	return n.result(), nil
}

func (c *counts) send(ctx context.Context, client *http.Client, url string, timeout time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	c.sent.Add(1)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		c.failed.Add(1)
		return
	}
	resp, err := client.Do(req)
	if err != nil {
		c.failed.Add(1)
		return
	}
	_, err = io.Copy(io.Discard, resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		c.failed.Add(1)
		return
	}
	if class := resp.StatusCode / 100; class < len(c.class) {
		c.class[class].Add(1)
	}
}
