// Package load makes requests at a steady rate, with a bound on how many are
// under way: the traffic that a canary is judged by.
//
// It imports the standard library.
package load
