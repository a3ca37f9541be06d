package pod

import (
	"maps"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// known are the objects of a test's namespace.
type known struct {
	configMaps map[string]map[string]string
	secrets    map[string]map[string][]byte
}

func (k known) configMap(name string) (*corev1.ConfigMap, error) {
	data, ok := k.configMaps[name]
	if !ok {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "configmaps"}, name)
	}
	return &corev1.ConfigMap{Data: data}, nil
}

func (k known) secret(name string) (*corev1.Secret, error) {
	data, ok := k.secrets[name]
	if !ok {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, name)
	}
	return &corev1.Secret{Data: data}, nil
}

func field(path string) *corev1.EnvVarSource {
	return &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}
}

func TestEnvironment(t *testing.T) {
	yes := true
	objects := known{
		configMaps: map[string]map[string]string{"cm": {"a": "1", "B": "2"}},
		secrets:    map[string]map[string][]byte{"s": {"token": []byte("x")}},
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "n", UID: "u", Labels: map[string]string{"app": "web"}, Annotations: map[string]string{"k": "v"}},
		Spec:       corev1.PodSpec{NodeName: "node", ServiceAccountName: "sa"},
	}
	ref := func(name string) corev1.LocalObjectReference { return corev1.LocalObjectReference{Name: name} }
	for _, tc := range []struct {
		name  string
		c     corev1.Container
		image map[string]string
		want  map[string]string
		err   string
	}{
		{name: "downward API", c: corev1.Container{Env: []corev1.EnvVar{
			{Name: "IP", ValueFrom: field("status.podIP")}, {Name: "HOST", ValueFrom: field("status.hostIP")},
			{Name: "NAME", ValueFrom: field("metadata.name")}, {Name: "NS", ValueFrom: field("metadata.namespace")},
			{Name: "UID", ValueFrom: field("metadata.uid")}, {Name: "APP", ValueFrom: field("metadata.labels['app']")},
			{Name: "NODE", ValueFrom: field("spec.nodeName")}, {Name: "SA", ValueFrom: field("spec.serviceAccountName")},
		}}, want: map[string]string{"IP": "127.10.0.20", "HOST": "127.10.0.1", "NAME": "p", "NS": "n", "UID": "u", "APP": "web", "NODE": "node", "SA": "sa"}},
		{name: "references see what is before them only", c: corev1.Container{Env: []corev1.EnvVar{
			{Name: "A", Value: "$(POD_IP):80"}, {Name: "C", Value: "$(A)/$(D)/$$(A)"}, {Name: "D", Value: "d"},
		}}, want: map[string]string{"A": "127.10.0.20:80", "C": "127.10.0.20:80/$(D)/$(A)", "D": "d"}},
		{name: "the container's variables win over the image's", c: corev1.Container{Env: []corev1.EnvVar{{Name: "X", Value: "pod"}}},
			image: map[string]string{"X": "image", "Y": "$(POD_IP)"}, want: map[string]string{"X": "pod", "Y": "127.10.0.20"}},
		{name: "whole objects", c: corev1.Container{EnvFrom: []corev1.EnvFromSource{
			{Prefix: "P_", ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: ref("cm")}},
			{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: ref("s")}},
			{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: ref("none"), Optional: &yes}},
		}}, want: map[string]string{"P_a": "1", "P_B": "2", "token": "x"}},
		{name: "keys", c: corev1.Container{Env: []corev1.EnvVar{
			{Name: "A", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: ref("cm"), Key: "a"}}},
			{Name: "T", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: ref("s"), Key: "token"}}},
			{Name: "O", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: ref("s"), Key: "none", Optional: &yes}}},
		}}, want: map[string]string{"A": "1", "T": "x"}},
		{name: "resources", c: corev1.Container{
			Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Mi")}},
			Env: []corev1.EnvVar{{Name: "M", ValueFrom: &corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{
				Resource: "limits.memory", Divisor: resource.MustParse("1Mi")}}}},
		}, want: map[string]string{"M": "64"}},
		{name: "a missing ConfigMap", err: `env A: configmaps "none" not found`, c: corev1.Container{Env: []corev1.EnvVar{
			{Name: "A", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: ref("none"), Key: "a"}}}}}},
		{name: "a missing key", err: "env A: couldn't find key z in ConfigMap n/cm", c: corev1.Container{Env: []corev1.EnvVar{
			{Name: "A", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: ref("cm"), Key: "z"}}}}}},
		{name: "a missing whole object", err: `secrets "none" not found`, c: corev1.Container{EnvFrom: []corev1.EnvFromSource{
			{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: ref("none")}}}}},
		{name: "an unknown field", err: "env A:", c: corev1.Container{Env: []corev1.EnvVar{{Name: "A", ValueFrom: field("spec.nothing")}}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			predefined := map[string]string{"POD_IP": "127.10.0.20"}
			got, err := environment(pod, "127.10.0.20", "127.10.0.1", &tc.c, tc.image, predefined, objects)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Fatalf("error %v, want one with %q", err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			tc.want["POD_IP"] = "127.10.0.20"
			if !maps.Equal(got, tc.want) {
				t.Errorf("environment %v\nwant %v", got, tc.want)
			}
			if len(predefined) != 1 {
				t.Errorf("the predefined variables were changed: %v", predefined)
			}
		})
	}
}
