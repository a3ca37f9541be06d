package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/canarycontroller/canary-controller/deploy/examples/bookinfo/internal/books"
	"github.com/canarycontroller/canary-controller/deploy/examples/bookinfo/internal/endpoints"
	"github.com/canarycontroller/canary-controller/deploy/examples/bookinfo/internal/load"
	"github.com/canarycontroller/canary-controller/deploy/examples/bookinfo/internal/ratingspb"
	"github.com/canarycontroller/canary-controller/middleware"
	grpcmw "github.com/canarycontroller/canary-controller/middleware/grpc"
	"github.com/canarycontroller/canary-controller/middleware/outlier"
)

func details(ctx context.Context, p *process) error {
	return p.ServeHTTP(ctx, books.Details())
}

func ratings(ctx context.Context, p *process) error {
	return p.ServeGRPC(ctx, func(s *grpc.Server) { ratingspb.RegisterRatingsServer(s, books.Ratings{}) })
}

func productpage(ctx context.Context, p *process) (failure error) {
	var policy outlier.TrafficPolicy
	if path := p.env("OUTLIER_POLICY"); path != "" {
		text, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("OUTLIER_POLICY: %w", err)
		}
		parsed, err := outlier.ParsePolicy(text)
		if err != nil {
			return fmt.Errorf("OUTLIER_POLICY %s: %w", path, err)
		}
		policy = parsed.TrafficPolicy
	}
	page := books.ProductPage{Log: p.Log}
	for _, up := range []struct {
		name, variable, fallback string
		client                   **http.Client
	}{
		{"details", "DETAILS", "details:9080", &page.Details},
		{"reviews", "REVIEWS", "reviews:9080", &page.Reviews},
	} {
		client, closeClient, err := p.cluster(up.name, up.variable, up.fallback, policy)
		if err != nil {
			return err
		}
		defer func() { failure = errors.Join(failure, closeClient()) }()
		*up.client = client
	}
	return p.ServeHTTP(ctx, page.Mux())
}

// cluster makes a client that spreads requests over a service's endpoints.
func (p *process) cluster(name, variable, fallback string, policy outlier.TrafficPolicy) (*http.Client, func() error, error) {
	where, err := endpoints.Parse(p.envOr(variable, fallback))
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", variable, err)
	}
	balanced, err := outlier.New(name, where, outlier.WithPolicy(policy), outlier.WithRegisterer(p.Registry),
		outlier.WithLogger(p.Log), outlier.WithResolveInterval(endpoints.Interval))
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", variable, err)
	}
	traced, err := middleware.NewTransport(balanced, middleware.WithRegisterer(p.Registry), middleware.WithServerAddresses("details", "reviews"))
	if err != nil {
		return nil, nil, errors.Join(err, balanced.Close())
	}
	return &http.Client{Transport: traced}, balanced.Close, nil
}

func reviews(ctx context.Context, p *process) (failure error) {
	needed, err := books.NeedsRatings(p.Config.Version)
	if err != nil {
		return err
	}
	s := books.Reviews{Version: p.Config.Version, Log: p.Log}
	if needed {
		where, err := endpoints.Parse(p.envOr("RATINGS", "ratings:9080"))
		if err != nil {
			return fmt.Errorf("RATINGS: %w", err)
		}
		mw, err := grpcmw.NewClient(grpcmw.WithRegisterer(p.Registry))
		if err != nil {
			return err
		}
		conn, err := grpc.NewClient(endpoints.Scheme+":///ratings", append(mw.DialOptions(),
			grpc.WithResolvers(endpoints.Builder(where)),
			grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithDefaultServiceConfig(`{"loadBalancingConfig":[{"round_robin":{}}]}`))...)
		if err != nil {
			return fmt.Errorf("RATINGS: %w", err)
		}
		defer func() { failure = errors.Join(failure, conn.Close()) }()
		s.Client = ratingspb.NewRatingsClient(conn)
	}
	return p.ServeHTTP(ctx, s.Mux())
}

func (p *process) envOr(name, fallback string) string {
	if v := p.env(name); v != "" {
		return v
	}
	return fallback
}

// generate runs the load generator and prints its result as JSON.
func generate(ctx context.Context, p *process) error {
	var c load.Config
	flags := flag.NewFlagSet("load", flag.ContinueOnError)
	flags.SetOutput(p.out)
	urls := flags.String("url", "http://productpage:9080/productpage", "comma-separated URLs, asked in turn")
	flags.Float64Var(&c.Rate, "rate", 20, "requests a second")
	flags.DurationVar(&c.Duration, "duration", 0, "how long; 0 is until interrupted")
	flags.IntVar(&c.Requests, "requests", 0, "how many; 0 is no limit")
	flags.IntVar(&c.Concurrency, "concurrency", 32, "requests under way at most; more are skipped and counted")
	flags.DurationVar(&c.Timeout, "timeout", 10*time.Second, "of one request")
	flags.DurationVar(&c.Report, "report", 10*time.Second, "time between two log lines; 0 is only at the end")
	if err := flags.Parse(p.args); err != nil {
		return err
	}
	for u := range strings.SplitSeq(*urls, ",") {
		if u = strings.TrimSpace(u); u != "" {
			c.URLs = append(c.URLs, u)
		}
	}
	if err := c.Validate(); err != nil {
		return err
	}
	base := &http.Transport{MaxIdleConnsPerHost: c.Concurrency, IdleConnTimeout: time.Minute}
	defer base.CloseIdleConnections()
	// The generator is outside the application: it begins no traces, so that
	// the first span of each is productpage's.
	transport, err := middleware.NewTransport(base, middleware.WithRegisterer(p.Registry), middleware.WithForwardOnly())
	if err != nil {
		return err
	}
	client := &http.Client{Transport: transport}
	return p.ServeAdmin(ctx, func(ctx context.Context) error {
		result, err := load.Run(ctx, client, c, p.Log)
		return errors.Join(err, json.NewEncoder(p.out).Encode(result))
	})
}
