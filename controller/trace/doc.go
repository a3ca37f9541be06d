// Package trace makes one OpenTelemetry trace of each rollout:
//
//	rollout
//	├─ batch 1
//	│  ├─ apply
//	│  ├─ wait available
//	│  └─ gate
//	├─ batch 2 ...
//	└─ rollback
//
// A span is made when it has ended, out of nothing but the Canary's metadata and status:
// its ids are hashes ([IDs]) and its content is a function of what status keeps
// ([Spans]). A controller that was restarted, or another that became leader, therefore
// goes on with the same trace, and may send again what its predecessor sent: the copies
// are equal byte for byte, and the query service of Jaeger shows them once. Whatever could
// differ between two processes, such as their host or version, is left out for that.
//
// [Recorder] sends spans by OTLP from a goroutine of its own. It never keeps the
// reconciler waiting.
//
// The package may import the API types, OpenTelemetry's OTLP and the Prometheus client;
// never rollout or reconcile.
package trace
