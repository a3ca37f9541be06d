package pod

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// namespaced reads objects of one namespace from the API server.
type namespaced struct {
	ctx       context.Context
	client    kubernetes.Interface
	namespace string
}

func (n namespaced) configMap(name string) (*corev1.ConfigMap, error) {
	return n.client.CoreV1().ConfigMaps(n.namespace).Get(n.ctx, name, metav1.GetOptions{})
}

func (n namespaced) secret(name string) (*corev1.Secret, error) {
	return n.client.CoreV1().Secrets(n.namespace).Get(n.ctx, name, metav1.GetOptions{})
}

// missing reports whether err says that an optional object is not there.
func missing(err error, optional *bool) bool {
	return err != nil && optional != nil && *optional && apierrors.IsNotFound(err)
}
