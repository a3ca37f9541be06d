// Package exporter gives a controller built on client-go a complete /metrics:
// the work queues, the API client and leader election under the names that
// existing dashboards and alerts know, the state of the controller's objects,
// and a server with TLS, authorisation and limits.
//
//	reg := exporter.NewRegistry()
//	if err := exporter.Install(reg, "application"); err != nil {
//		return err
//	}
//	metrics, err := exporter.NewHandler(exporter.HandlerConfig{Registry: reg})
//	if err != nil {
//		return err
//	}
//	server, err := exporter.NewServer(exporter.ServerConfig{Handler: metrics})
//
// then run server.Run(ctx) beside the controller. [Install] comes before the
// first queue, client or elector, since client-go looks for its metrics when it
// makes them, and takes them from the first who offers some: Install fails
// when somebody else was first, rather than leave /metrics without queues.
//
// # State of objects
//
// [Objects] holds the metrics of objects, such as a custom resource's status,
// as rendered bytes: an object is rendered when it changes and a scrape copies
// bytes, so that 10,000 objects cost a scrape milliseconds and no garbage. It
// is fed by an informer ([Objects.Watch]) or by hand, and an object that is
// deleted is gone from the next scrape. Give it to [NewHandler]; with another
// handler, its Gather method makes it a prometheus.Gatherer.
//
// # Structure
//
// The package imports client-go and client_golang and nothing of this module.
// What is special to Canaries is in exporter/canary, outlier ejections are in
// exporter/outlier, and short-lived jobs push with exporter/push.
package exporter
