// Command vetalone runs those analyzers of go vet that look at one package at a
// time, without what could be learned of the packages it imports. It is for
// modules that import whole servers: to analyse a server takes longer than to
// compile it.
//
//	vetalone ./...
//
// It imports golang.org/x/tools only.
package main
