package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"github.com/canarycontroller/canary-controller/controller/cmd/kubectl-canary/internal/command"
)

// version is set by the linker for releases.
var version = "dev"

func main() {
	// Errors are told once, by this program; what libraries log besides helps nobody here.
	klog.SetLogger(logr.Discard())
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := command.Run(ctx, command.Invocation{
		Args: os.Args, Version: version, In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Getenv: os.Getenv,
	})
	cancel()
	os.Exit(code)
}
