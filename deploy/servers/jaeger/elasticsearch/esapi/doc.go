// Package esapi has the names of the Elasticsearch API that Jaeger's sources
// mention. Nothing can call them, for there is no client to call them on. It
// imports the standard library only.
package esapi
