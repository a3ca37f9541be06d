package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func testVolumes(t *testing.T, l *testLab) {
	l.apply(t, `
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {greeting: hello}
---
apiVersion: v1
kind: Secret
metadata: {name: hidden}
stringData: {key: s3cret}
---
apiVersion: v1
kind: Pod
metadata: {name: mounting, labels: {tier: front}}
spec:
  volumes:
  - {name: settings, configMap: {name: settings}}
  - {name: scratch, emptyDir: {}}
  - name: all
    projected: {sources: [{secret: {name: hidden}}, {downwardAPI: {items: [{path: tier, fieldRef: {fieldPath: "metadata.labels['tier']"}}]}}]}
  initContainers:
  - {name: first, image: sh, command: [sh, -c, "echo from init > /scratch/note"], volumeMounts: [{name: scratch, mountPath: /scratch}]}
  containers:
  - name: main
    image: sh
    command: [sh, -c]
    args: ["cat /etc/settings/greeting; echo; cat /scratch/note /all/key; echo; cat /all/tier; echo; echo $FILE; echo done > /dev/termination-log; exec sleep 1000"]
    env: [{name: FILE, value: /etc/settings/greeting}]
    volumeMounts: [{name: settings, mountPath: /etc/settings}, {name: scratch, mountPath: /scratch}, {name: all, mountPath: /all}]
`)
	eventually(t, patience, func(context.Context) error {
		out := l.run(t, "kubectl", "--", "get", "pod", "mounting", "-o", "jsonpath={.status.phase}")
		if out != "Running" {
			return errors.New("phase " + out)
		}
		out = l.run(t, "logs", "mounting", "-c", "main")
		want := "hello\nfrom init\ns3cret\nfront\n"
		if !strings.HasPrefix(out, want) || !strings.HasSuffix(out, "/volumes/settings/greeting\n") {
			return fmt.Errorf("output %q, want %q and a file of this machine", out, want)
		}
		return nil
	})
	l.apply(t, strings.Replace(single("lacking", "sh", ", envFrom: [{configMapRef: {name: nowhere}}]"), "lacking", "lacking", 1))
	if s := l.waiting(t, "lacking", "CreateContainerConfigError"); !strings.Contains(s.State.Waiting.Message, `configmaps "nowhere" not found`) {
		t.Errorf("message %q", s.State.Waiting.Message)
	}
}

// A pod reaches the API server with its own service account's rights.
func testServiceAccount(t *testing.T, l *testLab) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	l.apply(t, single("asking", "sh", fmt.Sprintf(`, command: [sh, -c, "%s=1 %s kubectl auth whoami -o jsonpath={.status.userInfo.username}; echo; exec sleep 1000"]`, envMain, self)))
	eventually(t, patience, func(ctx context.Context) error {
		stream, err := l.client.CoreV1().Pods("default").GetLogs("asking", &corev1.PodLogOptions{}).Stream(ctx)
		if err != nil {
			return err
		}
		defer stream.Close()
		text, err := io.ReadAll(stream)
		if err != nil || string(text) != "system:serviceaccount:default:default\n" {
			return fmt.Errorf("the pod is %q (%v)", text, err)
		}
		return nil
	})
}
