// Subjects about the conversion of built-in objects between their typed and their unstructured form.
package main

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
)

// fieldValue is an object with one value in one field.
type fieldValue struct {
	// Kind is as in `apps/v1/Deployment`.
	Kind string `json:"kind"`
	// Path is as in `spec.template.spec.containers.0.name`.
	Path string `json:"path"`
	// Value is JSON text.
	Value string `json:"value"`
}

func generateFieldValue(r *random) fieldValue {
	b := pickBuiltin(r)
	fields := b.fields()
	if numeric := b.numeric(); r.chance(85) && len(numeric) > 0 {
		fields = numeric
	}
	field := pick(r, fields)
	value := r.number()
	if r.chance(25) {
		value = r.plausible(field.kind, "")
	}
	return fieldValue{b.kindText(), field.path, value}
}

// object returns the JSON text of the object, and its type.
func (f fieldValue) object() (*builtin, string, error) {
	b := builtinsByText()[f.Kind]
	if b == nil || !json.Valid([]byte(f.Value)) {
		return nil, "", errNotAnInput
	}
	text, ok := placedObject(b, f.Path, f.Value)
	if !ok {
		return nil, "", errNotAnInput
	}
	return b, text, nil
}

// class is the type of the field and the range of the number: `int32, float beyond int64`.
func (f fieldValue) class() string {
	b := builtinsByText()[f.Kind]
	if b == nil {
		return ""
	}
	for _, field := range b.fields() {
		if field.path == f.Path {
			return field.kind + ", " + numberClass(f.Value)
		}
	}
	return numberClass(f.Value)
}

// unstructuredToTyped converts as the apiserver does after a strategic merge patch, with unknown fields as errors.
func unstructuredToTyped(b *builtin, object map[string]any) (runtime.Object, error) {
	typed := reflect.New(b.goType).Interface().(runtime.Object)
	err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object, typed, true)
	return typed, err
}

func init() {
	define(definition[fieldValue]{
		name:     "object.from-unstructured",
		about:    "runtime.DefaultUnstructuredConverter.FromUnstructured of a built-in object with one value in one field",
		generate: generateFieldValue,
		class:    fieldValue.class,
		evaluate: func(f fieldValue) (any, error) {
			b, text, err := f.object()
			if err != nil {
				return nil, err
			}
			object, err := decodeObject([]byte(text))
			if err != nil {
				return nil, err
			}
			return unstructuredToTyped(b, object)
		},
	})
	define(definition[json.RawMessage]{
		name: "object.roundtrip",
		about: "runtime.DefaultUnstructuredConverter of a generated built-in object to its typed form, back, and to the " +
			"typed form again",
		generate: func(r *random) json.RawMessage { return r.object(pickBuiltin(r)) },
		class:    roundtripClass,
		evaluate: roundtrip,
	})
}

// builtinOf returns the type of an object's JSON text.
func builtinOf(text json.RawMessage) (*builtin, error) {
	var head struct{ APIVersion, Kind string }
	if json.Unmarshal(text, &head) != nil {
		return nil, errNotAnInput
	}
	if b := builtinsByText()[head.APIVersion+"/"+head.Kind]; b != nil {
		return b, nil
	}
	return nil, errNotAnInput
}

// builtinKind is the class of a generated object.
func builtinKind(text json.RawMessage) string {
	if b, err := builtinOf(text); err == nil {
		return b.gvk.Kind
	}
	return ""
}

// roundtripClass is the kind of an object, unless a number beyond int64, which JSON decodes as a float, is in it.
func roundtripClass(text json.RawMessage) string {
	b, err := builtinOf(text)
	if err != nil {
		return ""
	}
	object, err := decodeObject(text)
	if err != nil {
		return b.gvk.Kind
	}
	if class := classesOf(b, object); strings.Contains(class, "float") {
		return class
	}
	return b.gvk.Kind
}

func roundtrip(text json.RawMessage) (any, error) {
	b, err := builtinOf(text)
	if err != nil {
		return nil, err
	}
	object, err := decodeObject(text)
	if err != nil {
		return nil, err
	}
	typed := reflect.New(b.goType).Interface().(runtime.Object)
	// The error is about the first bad key of a map in Go's random order, so its text is not an answer.
	if runtime.DefaultUnstructuredConverter.FromUnstructured(object, typed) != nil {
		return "refused", nil
	}
	back, err := runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
	if err != nil {
		return nil, fmt.Errorf("to unstructured: %w", err)
	}
	again := reflect.New(b.goType).Interface().(runtime.Object)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(back, again); err != nil {
		return nil, fmt.Errorf("to typed again: %w", err)
	}
	return map[string]any{"typed": typed, "unstructured": back, "same": reflect.DeepEqual(typed, again)}, nil
}
