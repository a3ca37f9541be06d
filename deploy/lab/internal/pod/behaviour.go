package pod

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// hollowBehaviour is what a hollow container does.
type hollowBehaviour struct {
	crash      bool
	neverReady bool
	readyDelay time.Duration
	ends       bool
	run        time.Duration
	exit       int
	stopDelay  time.Duration
}

// behaviour reads what the hollow container c of pod is to do. Only literal
// environment values count. An error names the variable.
func behaviour(pod *corev1.Pod, c *corev1.Container, imageEnv map[string]string) (hollowBehaviour, error) {
	get := func(name string) string {
		value := imageEnv[name]
		if v, ok := pod.Annotations[AnnotationPrefix+strings.ReplaceAll(strings.ToLower(name), "_", "-")]; ok {
			value = v
		}
		for _, e := range c.Env {
			if e.Name == name {
				value = e.Value
			}
		}
		return value
	}
	var b hollowBehaviour
	var err error
	boolean := func(name string, to *bool) {
		if v := get(name); v != "" && err == nil {
			if *to, err = strconv.ParseBool(v); err != nil {
				err = fmt.Errorf("%s: %q is not a boolean", name, v)
			}
		}
	}
	duration := func(name string, to *time.Duration) bool {
		v := get(name)
		if v == "" || err != nil {
			return false
		}
		if *to, err = time.ParseDuration(v); err != nil || *to < 0 {
			err = fmt.Errorf("%s: %q is not a duration such as 500ms", name, v)
		}
		return true
	}
	boolean(envCrash, &b.crash)
	boolean(envNeverReady, &b.neverReady)
	duration(envReadyDelay, &b.readyDelay)
	duration(envStopDelay, &b.stopDelay)
	b.ends = duration(envRun, &b.run)
	if v := get(envExit); v != "" && err == nil {
		if b.exit, err = strconv.Atoi(v); err != nil || b.exit < 0 || b.exit > 255 {
			err = fmt.Errorf("%s: %q is not an exit code", envExit, v)
		}
		b.ends = true
	}
	return b, err
}
