// Package compose makes a Canary from a Deployment as the API server has it and images
// for the new version. It is pure.
//
// It imports the API types only.
package compose
