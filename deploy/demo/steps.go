package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
)

// pollPeriod is how often the demo looks. It only reads, and there is one of it.
const pollPeriod = 200 * time.Millisecond

const examples = "deploy/examples/go-hello/"

// The versions of go-hello.
const (
	v1 = "v1"
	v2 = "v2"
)

// replicas is what the example Deployments ask for.
const replicas = 4

// release goes through the release and its rollback.
func (d *demo) release(ctx context.Context) error {
	for _, step := range []struct {
		title string
		do    func(context.Context) error
	}{
		{"Release go-hello v1: NormalDeploy", d.normalDeploy},
		{"Release v2 as a canary: four batches, approval after the first", d.firstBatch},
		{"Approve, as a person would", d.approve},
		{"Roll back to v1", d.rollBack},
		{"What Prometheus saw", d.metrics},
		{"Bookinfo: four services and their users", d.startBookinfo},
		{"Release reviews v2: the gate promotes it batch by batch, on evidence", d.inLab(d.promote)},
		{"Release reviews v3, which fails 5 % of its requests: the gate rolls it back", d.inLab(d.catch)},
		{"Release reviews v4 while Prometheus is down: the gate holds, and blames nobody", d.inLab(d.outlast)},
	} {
		if step.do == nil {
			continue
		}
		d.begin(step.title)
		if err := d.within(ctx, step.title, step.do); err != nil {
			return err
		}
	}
	return nil
}

func (d *demo) normalDeploy(ctx context.Context) error {
	if !d.ownCluster() { // there it is made with the rest of what has to be removed
		if err := d.run(ctx, "apply", "-f", examples+"namespace.yaml"); err != nil {
			return err
		}
	}
	if err := d.apply(ctx, "normal-deploy.yaml"); err != nil {
		return err
	}
	if err := d.until(ctx, v1alpha1.PhaseCompleted, nil); err != nil {
		return err
	}
	return d.versions(ctx, map[string]int{v1: replicas})
}

func (d *demo) firstBatch(ctx context.Context) error {
	if err := d.apply(ctx, "canary-first.yaml"); err != nil {
		return err
	}
	if err := d.until(ctx, v1alpha1.PhaseAwaitingApproval, func(c *v1alpha1.Canary) error {
		return replicasAre(c, 1, replicas-1)
	}); err != nil {
		return err
	}
	if err := d.versions(ctx, map[string]int{v1: replicas - 1, v2: 1}); err != nil {
		return err
	}
	return d.run(ctx, "-n", namespace, "get", "canary", canaryName)
}

func (d *demo) approve(ctx context.Context) error {
	if err := d.run(ctx, "-n", namespace, "patch", "canary", canaryName, "--type=merge", "-p", `{"spec":{"info":{"currentBatch":"2"}}}`); err != nil {
		return err
	}
	if err := d.until(ctx, v1alpha1.PhaseCompleted, func(c *v1alpha1.Canary) error {
		return replicasAre(c, replicas, 0)
	}); err != nil {
		return err
	}
	if err := d.gone(ctx, "go-hello-v1"); err != nil {
		return err
	}
	return d.versions(ctx, map[string]int{v2: replicas})
}

func (d *demo) rollBack(ctx context.Context) error {
	if err := d.run(ctx, "-n", namespace, "patch", "canary", canaryName, "--type=merge", "-p", `{"spec":{"info":{"type":"CanaryRollback"}}}`); err != nil {
		return err
	}
	if err := d.until(ctx, v1alpha1.PhaseRolledBack, nil); err != nil {
		return err
	}
	if err := d.gone(ctx, "go-hello-v2"); err != nil {
		return err
	}
	if err := d.versions(ctx, map[string]int{v1: replicas}); err != nil {
		return err
	}
	return d.run(ctx, "-n", namespace, "get", "events", "--field-selector=involvedObject.kind=Canary", "--sort-by=.lastTimestamp",
		"-o=custom-columns=TYPE:.type,REASON:.reason,MESSAGE:.message")
}

// metrics shows that the operator's numbers have arrived in Prometheus.
func (d *demo) metrics(ctx context.Context) error {
	const expression = `sum(workqueue_adds_total{job="` + operatorJob + `"})`
	for {
		n, err := d.prometheus.query(ctx, expression)
		if err == nil && n > 0 {
			d.saw("%s is %g", expression, n)
			return nil
		}
		if err := d.pause(ctx, errors.Join(fmt.Errorf("%s is %g", expression, n), err)); err != nil {
			return err
		}
	}
}

// apply applies an example, in the user's own cluster with the user's image.
func (d *demo) apply(ctx context.Context, file string) error {
	if d.image == defaultImage {
		return d.run(ctx, "apply", "-f", examples+file)
	}
	text, err := os.ReadFile(examples + file)
	if err != nil {
		return fmt.Errorf("reading an example: %w", err)
	}
	d.command("kubectl", "apply", "-f", examples+file, "# with the image "+d.image)
	_, err = d.kubectlQuiet(ctx, strings.ReplaceAll(string(text), defaultImage+":", d.image+":"), "apply", "-f", "-")
	return err
}

// until shows the Canary whenever it changes and returns when it has the phase
// for the spec as it is now, and meets the condition.
func (d *demo) until(ctx context.Context, phase v1alpha1.Phase, also func(*v1alpha1.Canary) error) error {
	return d.untilCanary(ctx, namespace, canaryName, phase, also)
}

func (d *demo) untilCanary(ctx context.Context, namespace, canaryName string, phase v1alpha1.Phase, also func(*v1alpha1.Canary) error) error {
	var shown string
	for {
		var waiting error
		c, err := d.canaries.CanarycontrollerV1alpha1().Canaries(namespace).Get(ctx, canaryName, metav1.GetOptions{})
		switch {
		case err != nil:
			waiting = err
		case c.Status.ObservedGeneration != c.Generation:
			waiting = errors.New("the operator has not answered to the last change")
		default:
			if now := row(c) + string(c.Status.Phase); now != shown {
				d.row(c)
				shown = now
			}
			done, err := reached(c, phase, also)
			if err != nil {
				return err
			}
			if done {
				d.saw("%s", c.Status.Message)
				return nil
			}
			waiting = fmt.Errorf("the phase is %s, not %s: %s", c.Status.Phase, phase, c.Status.Message)
		}
		if err := d.pause(ctx, waiting); err != nil {
			return err
		}
	}
}

// reached reports whether the Canary is where it should be. An error says that
// it will not get there by waiting.
func reached(c *v1alpha1.Canary, phase v1alpha1.Phase, also func(*v1alpha1.Canary) error) (bool, error) {
	got := c.Status.Phase
	if got == phase {
		if also == nil {
			return true, nil
		}
		return true, also(c)
	}
	if got == v1alpha1.PhaseInvalid || got == v1alpha1.PhaseFailed {
		return false, fmt.Errorf("the phase is %s, not %s: %s", got, phase, c.Status.Message)
	}
	return false, nil
}

// replicasAre checks the available replicas in the status.
func replicasAre(c *v1alpha1.Canary, wantNew, wantOld int32) error {
	var gotNew, gotOld int32
	if c.Status.New != nil {
		gotNew = c.Status.New.AvailableReplicas
	}
	if c.Status.Old != nil {
		gotOld = c.Status.Old.AvailableReplicas
	}
	if gotNew != wantNew || gotOld != wantOld {
		return fmt.Errorf("in phase %s, new has %d and old %d available replicas, not %d and %d", c.Status.Phase, gotNew, gotOld, wantNew, wantOld)
	}
	return nil
}

// gone waits until a Deployment is not there any more.
func (d *demo) gone(ctx context.Context, name string) error {
	for {
		_, err := d.kube.AppsV1().Deployments(namespace).Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			d.saw("Deployment %s is gone", name)
			return nil
		}
		if err := d.pause(ctx, errors.Join(fmt.Errorf("the Deployment %s is still there", name), err)); err != nil {
			return err
		}
	}
}

// versions waits until asking every pod gives the wanted number of answers of
// each version, no more and no less.
func (d *demo) versions(ctx context.Context, want map[string]int) error {
	if d.ownCluster() {
		return nil
	}
	for {
		got, err := d.ask(ctx)
		if err == nil && maps.Equal(got, want) {
			d.saw("asked every pod for GET /version: %s", counted(got))
			return nil
		}
		if err := d.pause(ctx, errors.Join(fmt.Errorf("the pods answer %s, not %s", counted(got), counted(want)), err)); err != nil {
			return err
		}
	}
}

func counted(versions map[string]int) string {
	var words []string
	for _, v := range slices.Sorted(maps.Keys(versions)) {
		words = append(words, fmt.Sprintf("%d x %s", versions[v], v))
	}
	return strings.Join(words, ", ")
}

// ask asks every pod of go-hello that runs for its version.
func (d *demo) ask(ctx context.Context) (map[string]int, error) {
	pods, err := d.kube.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=go-hello"})
	if err != nil {
		return nil, fmt.Errorf("listing the pods of go-hello: %w", err)
	}
	versions := map[string]int{}
	for _, pod := range pods.Items {
		if pod.DeletionTimestamp != nil || pod.Status.Phase != corev1.PodRunning {
			continue
		}
		v, err := version(ctx, net.JoinHostPort(pod.Status.PodIP, "8080"))
		if err != nil {
			return versions, fmt.Errorf("asking pod %s for its version: %w", pod.Name, err)
		}
		versions[v]++
	}
	return versions, nil
}

func version(ctx context.Context, address string) (string, error) {
	var answer struct{ Version string }
	err := getJSON(ctx, "http://"+address+"/version", &answer)
	return answer.Version, err
}

// pause waits for the next look. When the time is up, or a server of the demo
// has ended, it says what was being waited for.
func (d *demo) pause(ctx context.Context, waiting error) error {
	select {
	case <-ctx.Done():
		return fmt.Errorf("%w (%w)", waiting, ctx.Err())
	case name := <-d.died:
		return fmt.Errorf("%s ended by itself; before that: %w", name, waiting)
	case <-time.After(pollPeriod):
		return nil
	}
}

// inLab is a step that there is in the lab only.
func (d *demo) inLab(do func(context.Context) error) func(context.Context) error {
	if d.ownCluster() {
		return nil
	}
	return do
}
