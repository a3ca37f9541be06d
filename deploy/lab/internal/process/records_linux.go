package process

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const recordsDir = "processes"

// Identity names one process for good: a pid alone may have been given to
// another process since.
type Identity struct {
	Pid int `json:"pid"`
	// StartTicks is field 22 of /proc/PID/stat (proc_pid_stat(5)): clock ticks
	// after boot at which the process started.
	StartTicks uint64 `json:"startTicks"`
}

// Self identifies the calling process.
func Self() (Identity, error) { return Identify(os.Getpid()) }

// Identify identifies the running process pid.
func Identify(pid int) (Identity, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return Identity{}, fmt.Errorf("identifying process %d: %w", pid, err)
	}
	ticks, _, err := parseStat(string(stat))
	if err != nil {
		return Identity{}, fmt.Errorf("identifying process %d: %w", pid, err)
	}
	return Identity{Pid: pid, StartTicks: ticks}, nil
}

// Alive reports whether this very process still runs (a zombie does not).
func (i Identity) Alive() bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", i.Pid))
	if err != nil {
		return false
	}
	ticks, state, err := parseStat(string(stat))
	return err == nil && ticks == i.StartTicks && state != 'Z' && state != 'X'
}

// parseStat reads the start time and the state from the text of
// /proc/PID/stat. The second field is the command in parentheses and may hold
// spaces and parentheses itself.
func parseStat(stat string) (ticks uint64, state byte, err error) {
	end := strings.LastIndexByte(stat, ')')
	if end < 0 {
		return 0, 0, errors.New("no command in the stat line")
	}
	fields := strings.Fields(stat[end+1:])
	if len(fields) < 20 || len(fields[0]) != 1 {
		return 0, 0, errors.New("stat line too short")
	}
	ticks, err = strconv.ParseUint(fields[19], 10, 64)
	return ticks, fields[0][0], err
}

func writeRecord(path string, pid int) error {
	id, err := Identify(pid)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			return nil
		}
		return err
	}
	return os.WriteFile(path, []byte(strconv.FormatUint(id.StartTicks, 10)), 0o600)
}

// Sweep kills what a lab in dir that is no longer running left behind, and
// waits until it is gone: every recorded process with its group, and every
// process of this user that carries the lab's marker in its environment. It
// returns how many processes it killed.
func Sweep(dir string, except ...int) (int, error) {
	spared := map[int]bool{os.Getpid(): true}
	for _, pid := range except {
		spared[pid] = true
	}
	killed := map[int]bool{}
	deadline := time.Now().Add(10 * time.Second)
	for {
		found, err := leftovers(dir)
		if err != nil {
			return len(killed), err
		}
		n := 0
		for _, id := range found {
			if spared[id.Pid] || !id.Alive() {
				continue
			}
			n++
			killed[id.Pid] = true
			if pgid, err := syscall.Getpgid(id.Pid); err == nil && pgid == id.Pid {
				_ = syscall.Kill(-id.Pid, syscall.SIGKILL)
			}
			_ = syscall.Kill(id.Pid, syscall.SIGKILL)
		}
		if n == 0 {
			return len(killed), os.RemoveAll(filepath.Join(dir, recordsDir))
		}
		if time.Now().After(deadline) {
			return len(killed), fmt.Errorf("%d processes of the lab in %s do not die", n, dir)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func leftovers(dir string) ([]Identity, error) {
	var found []Identity
	entries, err := os.ReadDir(filepath.Join(dir, recordsDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("reading the process records of the lab in %s: %w", dir, err)
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, recordsDir, e.Name()))
		if err != nil {
			continue
		}
		if ticks, err := strconv.ParseUint(string(text), 10, 64); err == nil {
			found = append(found, Identity{Pid: pid, StartTicks: ticks})
		}
	}
	marked, err := Marked(dir)
	return append(found, marked...), err
}

// Marked lists the running processes that carry the marker of the lab in dir
// in their environment, as far as this user may read it.
func Marked(dir string) ([]Identity, error) {
	procs, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("listing processes: %w", err)
	}
	want := []byte(MarkerEnv + "=" + dir)
	var found []Identity
	for _, e := range procs {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		environ, err := os.ReadFile(filepath.Join("/proc", e.Name(), "environ"))
		if err != nil {
			continue
		}
		for v := range bytes.SplitSeq(environ, []byte{0}) {
			if bytes.Equal(v, want) {
				if id, err := Identify(pid); err == nil && id.Alive() {
					found = append(found, id)
				}
				break
			}
		}
	}
	return found, nil
}
