package pod

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	resourcehelper "k8s.io/kubernetes/pkg/api/v1/resource"
	"k8s.io/kubernetes/pkg/volume/configmap"
	"k8s.io/kubernetes/pkg/volume/secret"
	volumeutil "k8s.io/kubernetes/pkg/volume/util"
)

// refreshPeriod is how often the volumes made of API objects are brought up to
// date. A kubelet's is of the same order.
const refreshPeriod = time.Minute

// volumeSet is a pod's volumes on disk.
type volumeSet struct {
	e   *Engine
	pod *corev1.Pod
	ip  string
	dir string
	// tokens are the service account tokens by volume and path, with the time
	// to get a new one.
	tokens map[string]token
}

type token struct {
	text  string
	renew time.Time
}

// write makes or updates every volume. It returns the directory or file of
// each by name, and an error that names the first volume that cannot be had.
func (s *volumeSet) write(ctx context.Context, now time.Time) (map[string]string, error) {
	hosts := map[string]string{}
	for i := range s.pod.Spec.Volumes {
		v := &s.pod.Spec.Volumes[i]
		host := filepath.Join(s.dir, v.Name)
		if hp := v.HostPath; hp != nil {
			hosts[v.Name] = hp.Path
			continue
		}
		if err := os.MkdirAll(host, 0o755); err != nil {
			return nil, err
		}
		hosts[v.Name] = host
		payload, err := s.payload(ctx, v, now)
		if err != nil {
			return nil, fmt.Errorf("MountVolume.SetUp failed for volume %q : %w", v.Name, err)
		}
		if payload == nil {
			continue
		}
		writer, err := volumeutil.NewAtomicWriter(host, "pod "+string(s.pod.UID)+" volume "+v.Name)
		if err != nil {
			return nil, err
		}
		if err := writer.Write(payload, nil); err != nil {
			return nil, fmt.Errorf("MountVolume.SetUp failed for volume %q : %w", v.Name, err)
		}
	}
	return hosts, nil
}

// refreshable reports whether any volume is made of API objects.
func (s *volumeSet) refreshable() bool {
	for i := range s.pod.Spec.Volumes {
		v := &s.pod.Spec.Volumes[i]
		if v.ConfigMap != nil || v.Secret != nil || v.Projected != nil {
			return true
		}
	}
	return false
}

// payload is the files of a volume made of API objects, nil for an empty
// directory.
func (s *volumeSet) payload(ctx context.Context, v *corev1.Volume, now time.Time) (map[string]volumeutil.FileProjection, error) {
	get := namespaced{ctx, s.e.cfg.Client, s.pod.Namespace}
	switch {
	case v.EmptyDir != nil:
		return nil, nil
	case v.ConfigMap != nil:
		return configMapPayload(get, v.ConfigMap.Name, v.ConfigMap.Items, v.ConfigMap.DefaultMode, v.ConfigMap.Optional)
	case v.Secret != nil:
		return secretPayload(get, v.Secret.SecretName, v.Secret.Items, v.Secret.DefaultMode, v.Secret.Optional)
	case v.DownwardAPI != nil:
		return s.downwardPayload(v.DownwardAPI.Items, v.DownwardAPI.DefaultMode)
	case v.Projected != nil:
		return s.projectedPayload(ctx, get, v, now)
	default:
		return nil, errors.New("the lab knows the volume types emptyDir, configMap, secret, downwardAPI, projected and hostPath only")
	}
}

func configMapPayload(get objects, name string, items []corev1.KeyToPath, mode *int32, optional *bool) (map[string]volumeutil.FileProjection, error) {
	cm, err := get.configMap(name)
	if missing(err, optional) {
		cm, err = &corev1.ConfigMap{}, nil
	}
	if err != nil {
		return nil, err
	}
	return configmap.MakePayload(items, cm, mode, nil, optional != nil && *optional)
}

func secretPayload(get objects, name string, items []corev1.KeyToPath, mode *int32, optional *bool) (map[string]volumeutil.FileProjection, error) {
	sec, err := get.secret(name)
	if missing(err, optional) {
		sec, err = &corev1.Secret{}, nil
	}
	if err != nil {
		return nil, err
	}
	return secret.MakePayload(items, sec, mode, nil, optional != nil && *optional)
}

func (s *volumeSet) downwardPayload(items []corev1.DownwardAPIVolumeFile, mode *int32) (map[string]volumeutil.FileProjection, error) {
	payload := map[string]volumeutil.FileProjection{}
	for _, item := range items {
		var text string
		var err error
		switch {
		case item.FieldRef != nil:
			text, err = fieldValue(s.pod, s.ip, s.e.cfg.Host, item.FieldRef.FieldPath)
		case item.ResourceFieldRef != nil:
			text, err = resourcehelper.ExtractResourceValueByContainerName(item.ResourceFieldRef, s.pod, item.ResourceFieldRef.ContainerName)
		}
		if err != nil {
			return nil, err
		}
		file := volumeutil.FileProjection{Data: []byte(text), Mode: *mode}
		if item.Mode != nil {
			file.Mode = *item.Mode
		}
		payload[item.Path] = file
	}
	return payload, nil
}

func (s *volumeSet) projectedPayload(ctx context.Context, get objects, v *corev1.Volume, now time.Time) (map[string]volumeutil.FileProjection, error) {
	payload := map[string]volumeutil.FileProjection{}
	mode := v.Projected.DefaultMode
	for _, source := range v.Projected.Sources {
		var files map[string]volumeutil.FileProjection
		var err error
		switch {
		case source.ConfigMap != nil:
			files, err = configMapPayload(get, source.ConfigMap.Name, source.ConfigMap.Items, mode, source.ConfigMap.Optional)
		case source.Secret != nil:
			files, err = secretPayload(get, source.Secret.Name, source.Secret.Items, mode, source.Secret.Optional)
		case source.DownwardAPI != nil:
			files, err = s.downwardPayload(source.DownwardAPI.Items, mode)
		case source.ServiceAccountToken != nil:
			var text string
			text, err = s.token(ctx, v.Name, source.ServiceAccountToken, now)
			files = map[string]volumeutil.FileProjection{source.ServiceAccountToken.Path: {Data: []byte(text), Mode: 0o600}}
		default:
			err = errors.New("the lab projects configMap, secret, downwardAPI and serviceAccountToken only")
		}
		if err != nil {
			return nil, err
		}
		for path, file := range files {
			payload[path] = file
		}
	}
	return payload, nil
}

// token is the service account token for one path of a volume, a new one when
// 80 % of the old one's life are over.
func (s *volumeSet) token(ctx context.Context, volume string, source *corev1.ServiceAccountTokenProjection, now time.Time) (string, error) {
	key := volume + "/" + source.Path
	if t, ok := s.tokens[key]; ok && now.Before(t.renew) {
		return t.text, nil
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: source.ExpirationSeconds,
		BoundObjectRef:    &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: s.pod.Name, UID: s.pod.UID},
	}}
	if source.Audience != "" {
		request.Spec.Audiences = []string{source.Audience}
	}
	answer, err := s.e.cfg.Client.CoreV1().ServiceAccounts(s.pod.Namespace).
		CreateToken(ctx, s.pod.Spec.ServiceAccountName, request, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("failed to fetch token: %w", err)
	}
	life := answer.Status.ExpirationTimestamp.Sub(now)
	s.tokens[key] = token{text: answer.Status.Token, renew: now.Add(life * 8 / 10)}
	return answer.Status.Token, nil
}

// mounts are the container's mounts on this machine. A directory named by
// subPath is made, as a kubelet does.
func mounts(c *corev1.Container, hosts map[string]string, expand func(string) string) ([]mount, error) {
	var result []mount
	for _, m := range c.VolumeMounts {
		host, ok := hosts[m.Name]
		if !ok {
			return nil, fmt.Errorf("volume mount %s: no volume %q", m.MountPath, m.Name)
		}
		sub := m.SubPath
		if m.SubPathExpr != "" {
			sub = expand(m.SubPathExpr)
		}
		if sub != "" {
			if !filepath.IsLocal(sub) {
				return nil, fmt.Errorf("volume mount %s: subPath %q leaves the volume", m.MountPath, sub)
			}
			host = filepath.Join(host, sub)
			if _, err := os.Stat(host); errors.Is(err, os.ErrNotExist) {
				if err := os.MkdirAll(host, 0o755); err != nil {
					return nil, err
				}
			}
		}
		result = append(result, mount{path: strings.TrimSuffix(m.MountPath, "/"), host: host})
	}
	sortMounts(result)
	return result, nil
}
