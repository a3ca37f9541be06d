// Command servers builds the real servers that tests and the demo use.
//
//	servers build NAME...   build what is missing and print the programs' paths
//	servers path NAME...    print where the programs are or would be
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/canarycontroller/canary-controller/deploy/servers"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "servers:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	do := map[string]func(context.Context, servers.Server, servers.Options) (string, error){
		"build": servers.Ensure, "path": servers.Path,
	}
	if len(args) < 2 || do[args[0]] == nil {
		return fmt.Errorf("usage: servers {build|path} NAME..., the names being lab, prometheus, promtool, jaeger, helm")
	}
	for _, name := range args[1:] {
		server, err := servers.ByName(name)
		if err != nil {
			return err
		}
		path, err := do[args[0]](ctx, server, servers.Options{Progress: os.Stderr})
		if err != nil {
			return err
		}
		fmt.Println(path)
	}
	return nil
}
