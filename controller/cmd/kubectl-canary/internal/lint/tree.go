package lint

import (
	"fmt"
	"strconv"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
)

// duplicate is a key that a mapping has twice.
type duplicate struct {
	path string
	line int
}

// duplicates finds every key given twice, with the line of the second.
func duplicates(node *yamlv3.Node, path string) []duplicate {
	var found []duplicate
	switch node.Kind {
	case yamlv3.MappingNode:
		seen := map[string]bool{}
		for i := 0; i+1 < len(node.Content); i += 2 {
			key, value := node.Content[i], node.Content[i+1]
			at := join(path, key.Value)
			if seen[key.Value] && key.ShortTag() != "!!merge" {
				found = append(found, duplicate{at, key.Line})
			}
			seen[key.Value] = true
			found = append(found, duplicates(value, at)...)
		}
	case yamlv3.SequenceNode:
		for i, item := range node.Content {
			found = append(found, duplicates(item, fmt.Sprintf("%s[%d]", path, i))...)
		}
	}
	return found
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

func entry(node *yamlv3.Node, name string) (key, value *yamlv3.Node) {
	if node == nil || node.Kind != yamlv3.MappingNode {
		return nil, nil
	}
	for i := 0; i+1 < len(node.Content); i += 2 {
		if node.Content[i].Value == name {
			value = node.Content[i+1]
			if value.Kind == yamlv3.AliasNode {
				value = value.Alias
			}
			return node.Content[i], value
		}
	}
	return nil, nil
}

func scalar(node *yamlv3.Node, name string) string {
	_, value := entry(node, name)
	if value == nil || value.Kind != yamlv3.ScalarNode {
		return ""
	}
	return value.Value
}

// steps cuts a path such as spec.gate.checks[0].name into names and indexes.
func steps(path string) []string {
	return strings.FieldsFunc(path, func(r rune) bool { return r == '.' || r == '[' || r == ']' })
}

// at returns the node at a path, or nil.
func at(node *yamlv3.Node, path string) *yamlv3.Node {
	for _, step := range steps(path) {
		if node == nil {
			return nil
		}
		if node.Kind == yamlv3.SequenceNode {
			i, err := strconv.Atoi(step)
			if err != nil || i >= len(node.Content) {
				return nil
			}
			node = node.Content[i]
			continue
		}
		_, node = entry(node, step)
	}
	return node
}

// lineOf walks a path as far as it goes and returns the line of the last key found, 0 when
// not even the first is there.
func lineOf(node *yamlv3.Node, path string) int {
	line := 0
	for _, step := range steps(path) {
		if node.Kind == yamlv3.SequenceNode {
			i, err := strconv.Atoi(step)
			if err != nil || i < 0 || i >= len(node.Content) {
				return line
			}
			node = node.Content[i]
			line = node.Line
			continue
		}
		key, value := entry(node, step)
		if value == nil {
			return line
		}
		line, node = key.Line, value
	}
	return line
}
