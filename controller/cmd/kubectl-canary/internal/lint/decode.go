package lint

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	kjson "sigs.k8s.io/json"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
)

// mistyped is a value that its field cannot hold.
type mistyped struct{ path, rule string }

// mostMistyped bounds how many wrong values of one Canary are told at once, mostDecoded how
// many bytes are read over and over to find one.
const (
	mostMistyped = 20
	mostDecoded  = 8 << 20
)

// decode reads a Canary strictly. A value that its field cannot hold is told and left out,
// so that what is wrong after it is found too. The Canary is nil when nothing is left.
func decode(text []byte) (*v1alpha1.Canary, []error, []mistyped) {
	var found []mistyped
	for {
		var canary v1alpha1.Canary
		strict, err := kjson.UnmarshalStrict(text, &canary)
		if err == nil {
			return &canary, strict, found
		}
		var tree any
		path, rest := "", []byte(nil)
		if json.Unmarshal(text, &tree) == nil {
			path, rest = culprit(tree, err)
		}
		var mismatch *json.UnmarshalTypeError
		if path == "" && errors.As(err, &mismatch) {
			path = mismatch.Field
		}
		found = append(found, mistyped{path, typeRule(err)})
		if rest == nil || len(found) == mostMistyped {
			return nil, nil, found
		}
		text = rest
	}
}

func typeRule(err error) string {
	var mismatch *json.UnmarshalTypeError
	if errors.As(err, &mismatch) {
		return fmt.Sprintf("must not be a JSON %s", mismatch.Value)
	}
	return strings.TrimPrefix(strings.TrimPrefix(err.Error(), "json: "), "time: ")
}

// culprit finds the value that an error is about, which the error itself does not always
// say: the one without which there is no such error. It returns its path and the JSON
// without it.
func culprit(tree any, err error) (string, []byte) {
	paths := values(tree, nil)
	whole, marshalErr := json.Marshal(tree)
	if marshalErr != nil || len(paths)*len(whole) > mostDecoded {
		return "", nil
	}
	for _, path := range paths {
		rest, marshalErr := json.Marshal(without(tree, path))
		if marshalErr != nil {
			return "", nil
		}
		if _, again := kjson.UnmarshalStrict(rest, &v1alpha1.Canary{}); again == nil || again.Error() != err.Error() {
			return spell(path), rest
		}
	}
	return "", nil
}

// values lists the paths of all values, those inside others first.
func values(tree any, path []string) [][]string {
	var list [][]string
	switch value := tree.(type) {
	case map[string]any:
		names := make([]string, 0, len(value))
		for name := range value {
			names = append(names, name)
		}
		slices.Sort(names)
		for _, name := range names {
			list = append(list, values(value[name], append(slices.Clone(path), name))...)
		}
	case []any:
		for i, item := range value {
			list = append(list, values(item, append(slices.Clone(path), strconv.Itoa(i)))...)
		}
	}
	if len(path) > 0 {
		list = append(list, path)
	}
	return list
}

// without copies a tree but for the value at path. An item of a list becomes null, so that
// the others keep their index.
func without(tree any, path []string) any {
	switch value := tree.(type) {
	case map[string]any:
		copied := make(map[string]any, len(value))
		for name, item := range value {
			switch {
			case name != path[0]:
				copied[name] = item
			case len(path) > 1:
				copied[name] = without(item, path[1:])
			}
		}
		return copied
	case []any:
		copied := slices.Clone(value)
		if i, err := strconv.Atoi(path[0]); err == nil && i < len(copied) {
			if len(path) > 1 {
				copied[i] = without(copied[i], path[1:])
			} else {
				copied[i] = nil
			}
		}
		return copied
	}
	return tree
}

// spell writes a path as field.Path does.
func spell(path []string) string {
	var text strings.Builder
	for i, step := range path {
		switch _, err := strconv.Atoi(step); {
		case err == nil:
			text.WriteString("[" + step + "]")
		case i > 0:
			text.WriteString("." + step)
		default:
			text.WriteString(step)
		}
	}
	return text.String()
}
