// Subjects about selectors of labels, fields and nodes.
package main

import (
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

// selection is a selector and the labels or fields that it is applied to.
type selection struct {
	Selector string            `json:"selector"`
	Labels   map[string]string `json:"labels"`
}

// selectorValue returns a value of a label, often a number, because Gt and Lt compare numbers.
func (r *random) selectorValue() string {
	return pick(r, []string{fmt.Sprint(r.int64()), fmt.Sprint(r.below(10)), pick(r, fewNames), r.number(), r.text(), "", "007", "-0", "+1",
		"9223372036854775808", "0x10", "1_0"})
}

func (r *random) selectorLabels() map[string]string {
	m := map[string]string{}
	for _, name := range fewNames {
		if r.chance(60) {
			m[name] = r.selectorValue()
		}
	}
	return m
}

// labelRequirement returns one requirement in the text form.
func labelRequirement(r *random) string {
	name, value := pick(r, fewNames), r.selectorValue()
	return pick(r, []string{name + "=" + value, name + "==" + value, name + "!=" + value, name + ">" + value, name + "<" + value,
		name + " in (" + value + "," + r.selectorValue() + ")", name + " notin (" + value + ")", name, "!" + name, r.text()})
}

func generateLabelSelection(r *random) selection {
	parts := []string{}
	for range r.between(1, 3) {
		parts = append(parts, labelRequirement(r))
	}
	return selection{strings.Join(parts, pick(r, []string{",", " , "})), r.selectorLabels()}
}

func selectLabels(s selection) (any, error) {
	selector, err := labels.Parse(s.Selector)
	if err != nil {
		return nil, err
	}
	return map[string]any{"text": selector.String(), "matches": selector.Matches(labels.Set(s.Labels)), "empty": selector.Empty()}, nil
}

func selectFields(s selection) (any, error) {
	selector, err := fields.ParseSelector(s.Selector)
	if err != nil {
		return nil, err
	}
	return map[string]any{"text": selector.String(), "matches": selector.Matches(fields.Set(s.Labels)), "empty": selector.Empty()}, nil
}

func generateFieldSelection(r *random) selection {
	parts := []string{}
	for range r.between(1, 3) {
		value := pick(r, []string{r.selectorValue(), `a\,b`, `a\=b`, `a\\`, `a\`})
		parts = append(parts, pick(r, fewNames)+pick(r, []string{"=", "==", "!=", ""})+value)
	}
	return selection{strings.Join(parts, ","), r.selectorLabels()}
}

// structuredSelection is a selector as an object, and labels.
type structuredSelection struct {
	Selector json.RawMessage   `json:"selector"`
	Labels   map[string]string `json:"labels"`
}

// expression returns the JSON text of a requirement with one of the operators.
func (r *random) expression(operators []string) string {
	values := []string{}
	for range pick(r, []int{0, 1, 1, 1, 2}) {
		values = append(values, r.selectorValue())
	}
	return fmt.Sprintf(`{"key":%s,"operator":%q,"values":%s}`, quoted(pick(r, fewNames)), pick(r, operators), mustEncode(values))
}

func (r *random) expressions(operators []string) string {
	parts := []string{}
	for range r.between(1, 3) {
		parts = append(parts, r.expression(operators))
	}
	return strings.Join(parts, ",")
}

func selectWithLabelSelector(s structuredSelection) (any, error) {
	var selector metav1.LabelSelector
	if json.Unmarshal(s.Selector, &selector) != nil {
		return nil, errNotAnInput
	}
	parsed, err := metav1.LabelSelectorAsSelector(&selector)
	if err != nil {
		return nil, err
	}
	return map[string]any{"text": parsed.String(), "matches": parsed.Matches(labels.Set(s.Labels))}, nil
}

var nodeOperators = []string{"In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Gt", "Lt"}

// selectNode applies preferred terms, which contain the required ones, to a node with the labels.
func selectNode(s structuredSelection) (any, error) {
	var terms []corev1.PreferredSchedulingTerm
	if json.Unmarshal(s.Selector, &terms) != nil {
		return nil, errNotAnInput
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: s.Labels}}
	answer := map[string]any{}
	preferred, err := nodeaffinity.NewPreferredSchedulingTerms(terms)
	if err != nil {
		answer["preferred"] = err.Error()
	} else {
		answer["preferred"] = preferred.Score(node)
	}
	required := &corev1.NodeSelector{}
	for _, term := range terms {
		required.NodeSelectorTerms = append(required.NodeSelectorTerms, term.Preference)
	}
	matches, err := nodeaffinity.NewLazyErrorNodeSelector(required).Match(node)
	answer["required"], answer["error"] = matches, fmt.Sprint(err)
	return answer, nil
}

func generateNodeTerms(r *random) structuredSelection {
	terms := []string{}
	for range r.between(1, 3) {
		terms = append(terms, fmt.Sprintf(`{"weight":%d,"preference":{"matchExpressions":[%s]}}`, r.int32(), r.expressions(nodeOperators)))
	}
	return structuredSelection{json.RawMessage("[" + strings.Join(terms, ",") + "]"), r.selectorLabels()}
}

func init() {
	define(definition[selection]{
		name:     "selector.label",
		about:    "labels.Parse and Matches",
		generate: generateLabelSelection, evaluate: selectLabels,
	})
	define(definition[selection]{
		name:     "selector.field",
		about:    "fields.ParseSelector and Matches",
		generate: generateFieldSelection, evaluate: selectFields,
	})
	define(definition[structuredSelection]{
		name:  "selector.label-selector",
		about: "metav1.LabelSelectorAsSelector and Matches",
		generate: func(r *random) structuredSelection {
			text := fmt.Sprintf(`{"matchLabels":%s,"matchExpressions":[%s]}`, mustEncode(r.stringMap(1)),
				r.expressions([]string{"In", "NotIn", "Exists", "DoesNotExist", "Gt"}))
			return structuredSelection{json.RawMessage(text), r.selectorLabels()}
		},
		evaluate: selectWithLabelSelector,
	})
	define(definition[structuredSelection]{
		name:     "selector.node",
		about:    "nodeaffinity: required and preferred terms of a node selector, with Gt and Lt",
		generate: generateNodeTerms, evaluate: selectNode,
	})
}
