package tracing_test

import (
	"context"
	"fmt"
	"time"

	"go.opentelemetry.io/otel"

	"github.com/canarycontroller/canary-controller/middleware/tracing"
)

// A service's main: set up first, shut down last, with a deadline.
func ExampleSetup() {
	ctx := context.Background()
	p, err := tracing.Setup(ctx,
		tracing.WithServiceName("reviews"),
		tracing.WithServiceVersion("v2"),
		tracing.WithNamedSampler("parentbased_traceidratio", "1"),
		tracing.WithoutExporter(), // in place of WithOTLPGRPC, WithJaegerAgent, ...
	)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := p.Shutdown(ctx); err != nil {
			fmt.Println(err)
		}
	}()

	_, span := otel.Tracer("example").Start(ctx, "work")
	fmt.Println("sampled:", span.SpanContext().IsSampled())
	span.End()
	// Output: sampled: true
}
