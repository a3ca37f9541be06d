// Command sim measures how often the gate's proportion check is wrong and how long it
// takes, beside the rules of Flagger and Argo Rollouts, on simulated traffic:
//
//	go run ./controller/gate/sim -seed 1 -out docs/gate-simulation.md
//
// The same seed and number of rollouts give the same file on any number of processors of
// one architecture. It imports the gate and the API types, nothing else of this module.
package main
