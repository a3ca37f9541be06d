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
	do := map[string]func(context.Context, []servers.Server) ([]string, error){"build": build, "path": paths}
	if len(args) < 2 || do[args[0]] == nil {
		return fmt.Errorf("usage: servers {build|path} NAME..., the names being lab, prometheus, promtool, jaeger, helm")
	}
	var all []servers.Server
	for _, name := range args[1:] {
		server, err := servers.ByName(name)
		if err != nil {
			return err
		}
		all = append(all, server)
	}
	found, err := do[args[0]](ctx, all)
	for _, path := range found {
		fmt.Println(path)
	}
	return err
}

func build(ctx context.Context, all []servers.Server) ([]string, error) {
	return servers.EnsureAll(ctx, all, servers.Options{Progress: os.Stderr})
}

func paths(ctx context.Context, all []servers.Server) ([]string, error) {
	var found []string
	for _, server := range all {
		path, err := servers.Path(ctx, server, servers.Options{})
		if err != nil {
			return nil, err
		}
		found = append(found, path)
	}
	return found, nil
}
