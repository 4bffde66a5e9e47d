// Subjects about patches: strategic merge, JSON merge, JSON patch, three-way merges, and server-side apply.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/jsonmergepatch"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/apiserver/pkg/endpoints/openapi"
	"k8s.io/apiserver/pkg/server"
	openapibuilder "k8s.io/kube-openapi/pkg/builder3"
	openapiutil "k8s.io/kube-openapi/pkg/util"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	generatedopenapi "k8s.io/kubernetes/pkg/generated/openapi"
)

// patchInput is an object in the store and a patch of it. Both have the same type.
type patchInput struct {
	Current json.RawMessage `json:"current"`
	Patch   json.RawMessage `json:"patch"`
}

// generatePatch makes patches of one field and of several, each with one value in one numeric field at least.
func generatePatch(r *random) patchInput {
	b := pickBuiltin(r)
	if r.chance(50) {
		if numeric := b.numeric(); len(numeric) > 0 {
			text, _ := placedObject(b, pick(r, numeric).path, r.number())
			return patchInput{json.RawMessage(b.withType("{}")), json.RawMessage(text)}
		}
	}
	return patchInput{r.object(b), r.object(b)}
}

// generateDirectives makes patches with the directives of strategic merge.
func generateDirectives(r *random) patchInput {
	input := generatePatch(r)
	if r.chance(40) {
		input.Patch = json.RawMessage(r.withDirective(string(input.Patch)))
	}
	return input
}

// withDirective adds a directive to one object inside the JSON text.
func (r *random) withDirective(text string) string {
	parts := strings.Split(text, "{")
	at := r.below(len(parts)-1) + 1
	directive := pick(r, []string{`"$patch":"delete"`, `"$patch":"replace"`, `"$patch":"merge"`, `"$retainKeys":["name"]`,
		`"$setElementOrder/containers":[{"name":"b"},{"name":"a"}]`, `"$setElementOrder/finalizers":["b","a"]`,
		`"$deleteFromPrimitiveList/finalizers":["a"]`, `"spec":null`, `"name":null`, `"$patch":"x"`})
	// A patch that adds to a list and deletes from it is merged in the random order of a Go map.
	if strings.Contains(directive, "Primitive") && strings.Contains(text, `"finalizers"`) {
		directive = `"spec":null`
	}
	if !strings.HasPrefix(parts[at], "}") {
		directive += ","
	}
	parts[at] = directive + parts[at]
	return strings.Join(parts, "{")
}

// class is that of the numbers in a patch.
func (p patchInput) class() string {
	b, err := builtinOf(p.Current)
	if err != nil {
		return ""
	}
	patch, err := decodeObject(p.Patch)
	if err != nil {
		return b.gvk.Kind
	}
	return classesOf(b, patch)
}

// classesOf returns the types and ranges of the floats in an object, else of its integers, else its kind.
func classesOf(b *builtin, object map[string]any) string {
	classes := patchClasses(b.goType, object)
	slices.Sort(classes)
	classes = slices.Compact(classes)
	floats := slices.DeleteFunc(slices.Clone(classes), func(class string) bool { return !strings.Contains(class, "float") })
	switch {
	case len(floats) > 0:
		return strings.Join(floats, ", ")
	case len(classes) > 0:
		return strings.Join(classes, ", ")
	}
	return b.gvk.Kind
}

// patchClasses returns the classes of the numbers in a value of a patch.
func patchClasses(t reflect.Type, value any) []string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	classes := []string{}
	switch v := value.(type) {
	case map[string]any:
		for name, element := range v {
			if inner, ok := innerType(t, name); ok {
				classes = append(classes, patchClasses(inner, element)...)
			}
		}
	case []any:
		for _, element := range v {
			if t.Kind() == reflect.Slice {
				classes = append(classes, patchClasses(t.Elem(), element)...)
			}
		}
	case int64:
		classes = append(classes, kindOf(t)+", "+integerClass(v))
	case float64:
		classes = append(classes, kindOf(t)+", "+floatClass(v))
	}
	return classes
}

// innerType returns the type of a field, or of the values of a map.
func innerType(t reflect.Type, name string) (reflect.Type, bool) {
	switch {
	case kindOf(t) != "":
	case t.Kind() == reflect.Map:
		return t.Elem(), true
	case t.Kind() == reflect.Struct:
		field, ok := jsonFieldNamed(t, name)
		return field.goType, ok
	}
	return nil, false
}

// storedObject decodes an object as a server that has stored it: with defaults, in the internal version. Only objects
// that decode can be in the store.
func storedObject(b *builtin, text json.RawMessage) (runtime.Object, error) {
	object, _, err := legacyscheme.Codecs.UniversalDecoder().Decode(text, &b.gvk, nil)
	if err != nil {
		return nil, errNotAnInput
	}
	return object, nil
}

// patchTypes returns the type of the object; the patch must be a JSON value.
func (p patchInput) patchTypes() (*builtin, error) {
	if !json.Valid(p.Patch) {
		return nil, errNotAnInput
	}
	return builtinOf(p.Current)
}

// strategicMerge follows strategicPatchObject and applyPatchToObject of k8s.io/apiserver/pkg/endpoints/handlers/patch.go.
// Errors are reduced to the step, because a patch with two errors reports either, in the random order of a Go map.
func strategicMerge(p patchInput) (any, error) {
	b, err := p.patchTypes()
	if err != nil {
		return nil, err
	}
	stored, err := storedObject(b, p.Current)
	if err != nil {
		return nil, err
	}
	versioned, err := legacyscheme.Scheme.ConvertToVersion(stored, b.gvk.GroupVersion())
	if err != nil {
		return nil, err
	}
	original, err := runtime.DefaultUnstructuredConverter.ToUnstructured(versioned)
	if err != nil {
		return nil, err
	}
	patch, err := decodeObject(p.Patch)
	if err != nil {
		return nil, err
	}
	reference, err := legacyscheme.Scheme.New(b.gvk)
	if err != nil {
		return nil, err
	}
	patched, err := strategicpatch.StrategicMergeMapPatch(original, patch, reference)
	if err != nil {
		return "the merge is refused", nil
	}
	updated, err := unstructuredToTyped(b, patched)
	if err != nil && !runtime.IsStrictDecodingError(err) {
		return "the merged object is refused", nil
	}
	legacyscheme.Scheme.Default(updated)
	return withoutClock(updated)
}

// patchOpenAPI returns the converter of server-side apply, made as GenericAPIServer.getOpenAPIModels does.
var patchOpenAPI = sync.OnceValue(func() managedfields.TypeConverter {
	namer := openapi.NewDefinitionNamer(legacyscheme.Scheme)
	config := server.DefaultOpenAPIV3Config(generatedopenapi.GetOpenAPIDefinitions, namer)
	names := []string{}
	for _, b := range builtins() {
		object, err := legacyscheme.Scheme.New(b.gvk)
		if err != nil {
			panic(err)
		}
		// Some old groups are registered, but no server offers them.
		if name := openapiutil.GetCanonicalTypeName(object); config.Definitions[name].Schema.Type != nil {
			names = append(names, name)
		}
	}
	spec, err := openapibuilder.BuildOpenAPIDefinitionsForResources(config, names...)
	if err != nil {
		panic(err)
	}
	converter, err := managedfields.NewTypeConverter(spec, false)
	if err != nil {
		panic(err)
	}
	return converter
})

var fieldManagers sync.Map

// fieldManager returns the manager that the apiserver uses for the type.
func fieldManager(b *builtin) (*managedfields.FieldManager, error) {
	if manager, ok := fieldManagers.Load(b.gvk); ok {
		return manager.(*managedfields.FieldManager), nil
	}
	scheme := legacyscheme.Scheme
	manager, err := managedfields.NewDefaultFieldManager(patchOpenAPI(), runtime.UnsafeObjectConvertor(scheme), scheme, scheme,
		b.gvk, b.hub(), "", nil)
	if err == nil {
		fieldManagers.Store(b.gvk, manager)
	}
	return manager, err
}

// serverSideApply follows applyPatcher of k8s.io/apiserver/pkg/endpoints/handlers/patch.go.
func serverSideApply(p patchInput) (any, error) {
	b, err := p.patchTypes()
	if err != nil {
		return nil, err
	}
	manager, err := fieldManager(b)
	if err != nil {
		return nil, err
	}
	stored, err := storedObject(b, p.Current)
	if err != nil {
		return nil, err
	}
	empty, err := legacyscheme.Scheme.New(b.hub().WithKind(b.gvk.Kind))
	if err != nil {
		return nil, err
	}
	stored = manager.UpdateNoErrors(empty, stored, "creator")
	patch := &unstructured.Unstructured{Object: map[string]any{}}
	if err := yaml.Unmarshal(p.Patch, &patch.Object); err != nil {
		return nil, err
	}
	applied, err := manager.Apply(stored, patch, "applier", true)
	if err != nil {
		return nil, sortedError(withoutMapOrder(err))
	}
	versioned, err := legacyscheme.Scheme.ConvertToVersion(applied, b.gvk.GroupVersion())
	if err != nil {
		return nil, err
	}
	legacyscheme.Scheme.Default(versioned)
	if err := withoutTimes(versioned); err != nil {
		return nil, err
	}
	return withoutClock(versioned)
}

// withoutTimes removes the times of the run from managedFields.
func withoutTimes(object runtime.Object) error {
	accessor, err := meta.Accessor(object)
	if err != nil {
		return err
	}
	entries := accessor.GetManagedFields()
	for i := range entries {
		entries[i].Time = nil
	}
	slices.SortFunc(entries, func(a, b metav1.ManagedFieldsEntry) int { return strings.Compare(a.Manager, b.Manager) })
	accessor.SetManagedFields(entries)
	return nil
}

// withoutMapOrder cuts the text of an error of the unstructured converter: of a map with two bad entries, such as
// spec.hard of a ResourceQuota, it reports either, in the random order of a Go map.
func withoutMapOrder(err error) error {
	const conversion = "unable to convert unstructured object"
	if before, _, ok := strings.Cut(err.Error(), conversion); ok {
		return errors.New(before + conversion)
	}
	return err
}

// sortedError sorts the lines of an error that lists its parts in the random order of a Go map.
func sortedError(err error) error {
	lines := strings.Split(err.Error(), "\n")
	slices.Sort(lines)
	return errors.New(strings.Join(lines, "\n"))
}

// afterJSONPatch decodes a patched object as the apiserver does, with defaults.
func afterJSONPatch(b *builtin, patched []byte) (any, error) {
	object, _, err := legacyscheme.Codecs.UniversalDecoder(b.gvk.GroupVersion()).Decode(patched, &b.gvk, nil)
	if err != nil {
		return map[string]string{"patched": string(patched), "refused": err.Error()}, nil
	}
	return withoutClock(object)
}

// generateOperations makes a JSON patch of up to four operations on an object.
func generateOperations(r *random) patchInput {
	b := pickBuiltin(r)
	operations := []string{}
	for range r.between(1, 4) {
		operations = append(operations, r.operation(b))
	}
	return patchInput{r.object(b), json.RawMessage("[" + strings.Join(operations, ",") + "]")}
}

// operation returns one operation of a JSON patch.
func (r *random) operation(b *builtin) string {
	field := pick(r, b.fields())
	path := "/" + strings.ReplaceAll(field.path, ".", "/")
	if parts := strings.Split(path, "/"); r.chance(50) {
		path = strings.Join(parts[:r.between(2, len(parts))], "/")
	}
	path = strings.Replace(path, "/0", pick(r, []string{"/0", "/-", "/1", "/-1", "/9223372036854775808", "/00"}), 1)
	value := r.plausible(field.kind, "")
	if r.chance(30) {
		value = r.number()
	}
	operation := pick(r, []string{"add", "add", "replace", "test", "remove", "copy", "move"})
	return fmt.Sprintf(`{"op":%q,"path":%q,"from":"/metadata","value":%s}`, operation, path, value)
}

// threeWay is the input of `kubectl apply` on the client's side.
type threeWay struct {
	Original json.RawMessage `json:"original"`
	Modified json.RawMessage `json:"modified"`
	Current  json.RawMessage `json:"current"`
}

func generateThreeWay(r *random) threeWay {
	b := pickBuiltin(r)
	return threeWay{r.object(b), r.object(b), r.object(b)}
}

// threeWayMerge makes both kinds of patches that kubectl sends. Errors are reduced as in strategicMerge.
func threeWayMerge(t threeWay) (any, error) {
	b, err := builtinOf(t.Current)
	if err != nil {
		return nil, err
	}
	answer := map[string]any{}
	reference, err := strategicpatch.NewPatchMetaFromStruct(mustNew(b))
	if err != nil {
		return nil, err
	}
	patch, err := strategicpatch.CreateThreeWayMergePatch(t.Original, t.Modified, t.Current, reference, true)
	answer["strategic"] = textOrRefused(patch, err)
	patch, err = jsonmergepatch.CreateThreeWayJSONMergePatch(t.Original, t.Modified, t.Current)
	answer["json"] = textOrRefused(patch, err)
	return answer, nil
}

func mustNew(b *builtin) runtime.Object {
	object, err := legacyscheme.Scheme.New(b.gvk)
	if err != nil {
		panic(err)
	}
	return object
}

func textOrRefused(text []byte, err error) string {
	if err != nil {
		return "refused"
	}
	return string(text)
}

func init() {
	define(definition[patchInput]{
		name:     "patch.strategic",
		about:    "strategicpatch.StrategicMergeMapPatch and the conversion to the typed object, as in the apiserver's PATCH",
		generate: generateDirectives, class: patchInput.class, evaluate: strategicMerge,
	})
	define(definition[patchInput]{
		name:     "patch.apply",
		about:    "managedfields.FieldManager.Apply with the built-in schemas, and the conversion to the typed object",
		generate: generatePatch, class: patchInput.class, evaluate: serverSideApply,
	})
	define(definition[patchInput]{
		name:     "patch.merge",
		about:    "jsonpatch.MergePatch of a built-in object, and its decoding",
		generate: generatePatch, class: patchInput.class,
		evaluate: func(p patchInput) (any, error) {
			b, err := p.patchTypes()
			if err != nil {
				return nil, err
			}
			patched, err := jsonpatch.MergePatch(p.Current, p.Patch)
			if err != nil {
				return nil, err
			}
			return afterJSONPatch(b, patched)
		},
	})
	define(definition[patchInput]{
		name:     "patch.json",
		about:    "jsonpatch.Patch.Apply of a built-in object, and its decoding",
		generate: generateOperations,
		evaluate: func(p patchInput) (any, error) {
			b, err := p.patchTypes()
			if err != nil {
				return nil, err
			}
			patch, err := jsonpatch.DecodePatch(p.Patch)
			if err != nil {
				return nil, err
			}
			patched, err := patch.Apply(p.Current)
			if err != nil {
				return nil, err
			}
			return afterJSONPatch(b, patched)
		},
	})
	define(definition[threeWay]{
		name:     "patch.three-way",
		about:    "strategicpatch.CreateThreeWayMergePatch and jsonmergepatch.CreateThreeWayJSONMergePatch of built-in objects",
		generate: generateThreeWay, evaluate: threeWayMerge,
	})
}
