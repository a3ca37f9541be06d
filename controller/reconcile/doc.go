// Package reconcile is the Canary controller: informers, a work queue and workers that
// observe Deployments, ask package rollout what to do, do it, and write status and events.
//
// One sync reads from listers, decides once, writes Deployments by server-side apply and
// the status at most once, also when a step fails. Objects from listers are never changed.
// A sync that sees a cache older than its own last write stops; the write's event brings
// it back.
//
// It may import the API types, the generated clients, rollout, gate, trace and exporter.
package reconcile
