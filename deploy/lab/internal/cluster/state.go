package cluster

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/canarycontroller/canary-controller/deploy/lab/internal/process"
)

const stateFile = "lab.json"

// State is what a running lab says about itself in its directory. The file
// also marks the directory as a lab's.
type State struct {
	Supervisor process.Identity `json:"supervisor"`
	Name       string           `json:"name,omitempty"`
	Server     string           `json:"server,omitempty"`
	Kubeconfig string           `json:"kubeconfig,omitempty"`
	AuditLog   string           `json:"auditLog,omitempty"`
	Images     string           `json:"images,omitempty"`
	Nodes      int              `json:"nodes,omitempty"`
	// Control is the address of the lab's control API and Token its bearer
	// token.
	Control string `json:"control,omitempty"`
	Token   string `json:"token,omitempty"`
	// Ready is set once everything serves.
	Ready bool `json:"ready,omitempty"`
}

// Write replaces the state in dir.
func (s State) Write(dir string) error {
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	next := filepath.Join(dir, stateFile+".next")
	if err := os.WriteFile(next, append(text, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(next, filepath.Join(dir, stateFile))
}

// ReadState reads the state in dir.
func ReadState(dir string) (State, error) {
	var s State
	path := filepath.Join(dir, stateFile)
	text, err := os.ReadFile(path)
	if err != nil {
		return s, fmt.Errorf("reading the lab's state: %w", err)
	}
	if err := json.Unmarshal(text, &s); err != nil {
		return s, fmt.Errorf("reading the lab's state in %s: %w", path, err)
	}
	return s, nil
}
