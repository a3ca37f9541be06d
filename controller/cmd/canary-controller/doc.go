// Command canary-controller runs the operator: it reads flags, connects, elects a leader
// and runs controller/reconcile until SIGTERM or the loss of the lease.
package main
