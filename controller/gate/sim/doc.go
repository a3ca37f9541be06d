// Command sim measures how often the gate's proportion check is wrong and how long it
// takes, beside the rules of Flagger and Argo Rollouts, on simulated traffic:
//
//	go run ./controller/gate/sim -seed 1 -out docs/gate-simulation.md
//
// The same seed and number of rollouts give the same file on any machine and any number of
// processors. It imports the gate and nothing else of this module.
package main
