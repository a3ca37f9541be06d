package pod

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/kubernetes/pkg/api/v1/resource"
	"k8s.io/kubernetes/pkg/fieldpath"
	"k8s.io/kubernetes/third_party/forked/golang/expansion"
)

// objects finds what an environment or a volume refers to in a pod's
// namespace. An error for which apierrors.IsNotFound holds is a missing object.
type objects interface {
	configMap(name string) (*corev1.ConfigMap, error)
	secret(name string) (*corev1.Secret, error)
}

// environment is a container's environment: the image's, then envFrom, then
// env, the later winning, each value with its $(VAR) references expanded as
// the API defines it. predefined can be referred to by all.
func environment(pod *corev1.Pod, ip, hostIP string, c *corev1.Container, image, predefined map[string]string, get objects) (map[string]string, error) {
	env := maps.Clone(predefined)
	expand := func(s string) string { return expansion.Expand(s, expansion.MappingFuncFor(env)) }
	for _, k := range slices.Sorted(maps.Keys(image)) {
		env[k] = expand(image[k])
	}
	if err := addSources(env, c.EnvFrom, get); err != nil {
		return nil, err
	}
	for _, v := range c.Env {
		if v.ValueFrom == nil {
			env[v.Name] = expand(v.Value)
			continue
		}
		value, ok, err := valueFrom(pod, ip, hostIP, c, v.ValueFrom, get)
		if err != nil {
			return nil, fmt.Errorf("env %s: %w", v.Name, err)
		}
		if ok {
			env[v.Name] = value
		}
	}
	return env, nil
}

func addSources(env map[string]string, sources []corev1.EnvFromSource, get objects) error {
	for _, from := range sources {
		data := map[string]string{}
		switch {
		case from.ConfigMapRef != nil:
			cm, err := get.configMap(from.ConfigMapRef.Name)
			if missing(err, from.ConfigMapRef.Optional) {
				continue
			}
			if err != nil {
				return err
			}
			data = cm.Data
		case from.SecretRef != nil:
			s, err := get.secret(from.SecretRef.Name)
			if missing(err, from.SecretRef.Optional) {
				continue
			}
			if err != nil {
				return err
			}
			for k, v := range s.Data {
				data[k] = string(v)
			}
		}
		for k, v := range data {
			env[from.Prefix+k] = v
		}
	}
	return nil
}

// valueFrom resolves one reference. It reports false for an optional one to
// something that is not there.
func valueFrom(pod *corev1.Pod, ip, hostIP string, c *corev1.Container, from *corev1.EnvVarSource, get objects) (string, bool, error) {
	switch {
	case from.FieldRef != nil:
		value, err := fieldValue(pod, ip, hostIP, from.FieldRef.FieldPath)
		return value, err == nil, err
	case from.ResourceFieldRef != nil:
		value, err := resourcehelper.ExtractContainerResourceValue(from.ResourceFieldRef, c)
		return value, err == nil, err
	case from.ConfigMapKeyRef != nil:
		ref := from.ConfigMapKeyRef
		cm, err := get.configMap(ref.Name)
		if missing(err, ref.Optional) {
			return "", false, nil
		}
		if err != nil {
			return "", false, err
		}
		value, ok := cm.Data[ref.Key]
		if !ok && !(ref.Optional != nil && *ref.Optional) {
			return "", false, fmt.Errorf("couldn't find key %s in ConfigMap %s/%s", ref.Key, pod.Namespace, ref.Name)
		}
		return value, ok, nil
	case from.SecretKeyRef != nil:
		ref := from.SecretKeyRef
		s, err := get.secret(ref.Name)
		if missing(err, ref.Optional) {
			return "", false, nil
		}
		if err != nil {
			return "", false, err
		}
		value, ok := s.Data[ref.Key]
		if !ok && !(ref.Optional != nil && *ref.Optional) {
			return "", false, fmt.Errorf("couldn't find key %s in Secret %s/%s", ref.Key, pod.Namespace, ref.Name)
		}
		return string(value), ok, nil
	default:
		return "", false, fmt.Errorf("the lab knows fieldRef, resourceFieldRef, configMapKeyRef and secretKeyRef only")
	}
}

// fieldValue is a field of the pod for the downward API.
func fieldValue(pod *corev1.Pod, ip, hostIP, path string) (string, error) {
	switch path {
	case "spec.nodeName":
		return pod.Spec.NodeName, nil
	case "spec.serviceAccountName":
		return pod.Spec.ServiceAccountName, nil
	case "status.hostIP", "status.hostIPs":
		return hostIP, nil
	case "status.podIP", "status.podIPs":
		return ip, nil
	default:
		return fieldpath.ExtractFieldPathAsString(pod, path)
	}
}
