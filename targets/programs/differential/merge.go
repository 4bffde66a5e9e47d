// Subjects about structured merges: the values that server-side apply compares and merges.
package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	"sigs.k8s.io/structured-merge-diff/v6/typed"
	"sigs.k8s.io/structured-merge-diff/v6/value"
)

// mergeSchema has each kind of list and map that a schema can declare.
const mergeSchema = `types:
- name: root
  map:
    fields:
    - name: "n"
      type: {scalar: numeric}
    - name: u
      type: {scalar: untyped}
    - name: set
      type: {list: {elementType: {scalar: numeric}, elementRelationship: associative}}
    - name: list
      type: {list: {elementType: {scalar: numeric}, elementRelationship: atomic}}
    - name: keyed
      type: {list: {elementType: {namedType: element}, elementRelationship: associative, keys: [k]}}
    - name: map
      type: {map: {elementType: {scalar: numeric}}}
- name: element
  map:
    fields:
    - name: k
      type: {scalar: numeric}
    - name: v
      type: {scalar: untyped}
`

var mergeType = sync.OnceValue(func() typed.ParseableType {
	parser, err := typed.NewParser(mergeSchema)
	if err != nil {
		panic(err)
	}
	return parser.Type("root")
})

// mergeInput is a live object and an applied one.
type mergeInput struct {
	Live    json.RawMessage `json:"live"`
	Applied json.RawMessage `json:"applied"`
}

// mergeNumber returns a number; those of two objects are often equal as numbers.
func (r *random) mergeNumber() string {
	return pick(r, []string{"1", "1.0", "1e0", "2", "0", "-0", "-0.0", "9007199254740992", "9007199254740993", "9007199254740992.0",
		"9223372036854775807", "9223372036854775808", "-9223372036854775808", "-9.223372036854775808e18", "1e30", r.number()})
}

// mergeKey returns a number that identifies an element.
func (r *random) mergeKey() string {
	return pick(r, []string{"1", "1.0", "1e0", "2", "0", "-0", "-0.0", "0.1", "9007199254740991.0", "1e30", "-1e30", fmt.Sprint(r.int32())})
}

// mergeObject returns the JSON text of an object of the schema.
func (r *random) mergeObject() json.RawMessage {
	numbers := func(number func() string) string {
		parts := []string{}
		for range r.below(4) {
			parts = append(parts, number())
		}
		return "[" + strings.Join(parts, ",") + "]"
	}
	keyed := []string{}
	for range r.below(3) {
		keyed = append(keyed, fmt.Sprintf(`{"k":%s,"v":%s}`, r.mergeKey(), r.mergeNumber()))
	}
	fields := map[string]string{"n": r.mergeNumber(), "u": pick(r, []string{r.mergeNumber(), quoted(r.text()), "null"}), "set": numbers(r.mergeKey),
		"list": numbers(r.mergeNumber), "keyed": "[" + strings.Join(keyed, ",") + "]", "map": `{"a":` + r.mergeNumber() + "}"}
	parts := []string{}
	for _, name := range []string{"n", "u", "set", "list", "keyed", "map"} {
		if r.chance(60) {
			parts = append(parts, quoted(name)+":"+fields[name])
		}
	}
	return json.RawMessage("{" + strings.Join(parts, ",") + "}")
}

// typedValue validates an object against the schema.
func typedValue(text json.RawMessage) (*typed.TypedValue, error) {
	object, err := decodeObject(text)
	if err != nil || hasInexactKey(object) {
		return nil, errNotAnInput
	}
	return mergeType().FromUnstructured(object)
}

// hasInexactKey is true if an element's identity is an integer that no float represents. Two of them may equal the same
// float and not each other; then the merge never ends (mergingWalker.visitListItems, on every architecture).
func hasInexactKey(object map[string]any) bool {
	keys, _ := object["set"].([]any)
	keyed, _ := object["keyed"].([]any)
	for _, element := range keyed {
		if fields, ok := element.(map[string]any); ok {
			keys = append(slices.Clone(keys), fields["k"])
		}
	}
	return slices.ContainsFunc(keys, func(key any) bool {
		integer, ok := key.(int64)
		return ok && (integer >= 1<<53 || integer <= -(1<<53))
	})
}

// mergeTyped merges and compares the objects.
func mergeTyped(input mergeInput) (any, error) {
	live, err := typedValue(input.Live)
	if err != nil {
		return nil, sortedError(err)
	}
	applied, err := typedValue(input.Applied)
	if err != nil {
		return nil, sortedError(err)
	}
	answer := map[string]any{}
	if merged, err := live.Merge(applied); err != nil {
		answer["merge-error"] = sortedError(err).Error()
	} else {
		answer["merged"] = exactValue(merged.AsValue().Unstructured())
	}
	if comparison, err := live.Compare(applied); err != nil {
		answer["compare-error"] = sortedError(err).Error()
	} else {
		answer["comparison"] = comparison.String()
	}
	if set, err := applied.ToFieldSet(); err != nil {
		answer["set-error"] = sortedError(err).Error()
	} else {
		fields, err := set.ToJSON()
		answer["fields"], answer["fields-error"] = string(fields), fmt.Sprint(err)
	}
	answer["order"] = value.Compare(live.AsValue(), applied.AsValue())
	return answer, nil
}

func init() {
	define(definition[mergeInput]{
		name:     "patch.structured-merge",
		about:    "typed.TypedValue: Merge, Compare, ToFieldSet, and value.Compare, of objects with numbers in every kind of list",
		generate: func(r *random) mergeInput { return mergeInput{r.mergeObject(), r.mergeObject()} },
		evaluate: mergeTyped,
	})
}
