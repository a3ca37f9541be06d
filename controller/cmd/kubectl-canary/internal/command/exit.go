package command

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/tools/clientcmd"
)

// The exit codes. They are part of what scripts rely on.
const (
	exitDone        = 0
	exitError       = 1
	exitUsage       = 2
	exitNotFound    = 3
	exitOtherwise   = 4
	exitTimeout     = 5
	exitInterrupted = 130
)

const exitHelp = `Exit codes: 0 done, 1 error or refused, 2 wrong usage, 3 not found, 4 the rollout
ended otherwise than waited for, 5 timeout, 130 interrupted.`

// failure is an error with its exit code.
type failure struct {
	code int
	err  error
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

func failed(code int, format string, args ...any) error {
	return &failure{code, fmt.Errorf(format, args...)}
}

func usage(format string, args ...any) error { return failed(exitUsage, format, args...) }

// errShown ends a command with its code when everything has been said.
var errShown = errors.New("shown")

// codeOf is the exit code of an error.
func codeOf(err error) int {
	var f *failure
	switch {
	case err == nil:
		return exitDone
	case errors.As(err, &f):
		return f.code
	case errors.Is(err, context.Canceled):
		return exitInterrupted
	}
	return exitError
}

// explain turns what the API server or the way to it says into one sentence. object is
// what was asked for, such as Canary prod/web.
func (a *app) explain(err error, doing, object string) error {
	var unreachable *net.OpError
	var address *url.Error
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.Canceled):
		return err
	case apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) && apierrors.IsNotFound(err):
		return failed(exitError, "%s: this cluster does not know the kind Canary; install its CustomResourceDefinition with the operator (kubectl apply -k deploy/kustomize/base)", doing)
	case apierrors.IsNotFound(err):
		return failed(exitNotFound, "%s not found", object)
	case apierrors.IsForbidden(err):
		return failed(exitError, "%s: you are not allowed to: %s", doing, tidy(err))
	case apierrors.IsUnauthorized(err):
		return failed(exitError, "%s: the API server does not accept your credentials: %s", doing, tidy(err))
	case apierrors.IsInvalid(err) || apierrors.IsBadRequest(err):
		return failed(exitError, "%s: the API server refuses it: %s", doing, tidy(err))
	case apierrors.IsAlreadyExists(err):
		return failed(exitError, "%s: %s exists already", doing, object)
	case clientcmd.IsEmptyConfig(err):
		return failed(exitError, "%s: no kubeconfig; set KUBECONFIG or --kubeconfig", doing)
	case errors.As(err, &address) || errors.As(err, &unreachable) || utilnet.IsConnectionRefused(err):
		return failed(exitError, "%s: cannot reach the API server: %s", doing, tidy(err))
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// tidy makes one line of a message.
func tidy(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }
