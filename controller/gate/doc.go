// Package gate decides, from samples, whether a batch is promoted, held, paused for a
// person or rolled back. It is pure: no client, no clock, no logging. [Evaluate] turns
// evidence into the status of each check, [Decide] turns that status into an [Outcome] and
// [Due] says when to look again; all that the gate remembers is in status.
//
// It may import the API types and nothing else of this module; gate/prometheus gathers what
// it judges.
package gate
