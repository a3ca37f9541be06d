// Command testsummary reads the events of go test -json, shows what matters of
// them and keeps count. It fails when a test failed or was skipped although the
// list of expected skips does not name it: a skipped test has tested nothing.
//
//	go test -json ./... | testsummary -counts counts.txt -expected-skips skips.txt
//	testsummary -total -counts counts.txt
//
// It imports the standard library only.
package main
