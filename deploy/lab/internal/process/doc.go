// Package process starts processes that cannot outlive the lab, and finds and
// kills those that did all the same.
//
// It imports the standard library only. Linux only: it relies on
// PR_SET_PDEATHSIG and /proc.
package process
