package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
)

func main() {
	seed := flag.Uint64("seed", 1, "seed of the random numbers")
	rollouts := flag.Int("rollouts", 10_000, "rollouts per cell and scenario")
	out := flag.String("out", "", "file to write; standard output if empty")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *seed, *rollouts, *out, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "sim:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, seed uint64, rollouts int, out string, progress io.Writer) error {
	if rollouts < 1 {
		return fmt.Errorf("-rollouts must be at least 1, not %d", rollouts)
	}
	outcomes := simulate(ctx, append(cells(), outages()...), seed, rollouts, func(done, of int) {
		if done*10/of > (done-1)*10/of {
			fmt.Fprintf(progress, "%d of %d cells and scenarios\n", done, of)
		}
	})
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("interrupted, nothing written: %w", err)
	}
	var text bytes.Buffer
	report(&text, outcomes, seed, rollouts)
	if out == "" {
		_, err := os.Stdout.Write(text.Bytes())
		return err
	}
	if err := os.WriteFile(out, text.Bytes(), 0o644); err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	return nil
}
