// Package lint checks Canary manifests offline by the rules that the API server and the
// controller apply: no unknown and no duplicate field, then defaults and validation. It
// reads no file and asks no server.
//
// It imports the API types only.
package lint
