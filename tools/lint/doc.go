// Command lint is staticcheck and go vet in one: staticcheck's command with
// the analyzers of go vet beside its own. Both have to analyse every package
// that ours import, for what they learn of it, and that is nearly all of their
// time when nothing is cached; together they do it once.
//
//	lint -tags e2e ./...
//
// It imports staticcheck and golang.org/x/tools only.
package main
