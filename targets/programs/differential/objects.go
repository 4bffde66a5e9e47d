// Built-in types: their list, the paths of their fields, and generated objects as JSON text.
package main

import (
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	// Registers every built-in group in legacyscheme.
	_ "k8s.io/kubernetes/pkg/api/testing"
)

func init() {
	// utilruntime.HandleError logs to stderr and then sleeps for a millisecond.
	utilruntime.ErrorHandlers = nil
	// Decoded times have the time zone of the machine.
	time.Local = time.UTC
}

// builtin is a type that is registered in legacyscheme with a version.
type builtin struct {
	gvk    schema.GroupVersionKind
	goType reflect.Type
	// fields lists the fields that hold a single value, sorted by path.
	fields func() []builtinField
	// numeric is the part of fields whose values are numbers or contain one.
	numeric func() []builtinField
}

// builtinField is a field that holds a single value.
type builtinField struct {
	// path is as in `spec.template.spec.containers.0.name`; a map has the key `key`.
	path string
	// kind is the kind of its Go type (`int32`, `string`), or quantity, intorstring, time, microtime, duration, bytes.
	kind string
}

// builtins returns all built-in objects, sorted. Lists and the options of requests are left out.
var builtins = sync.OnceValue(func() []*builtin {
	all := []*builtin{}
	for gvk, goType := range legacyscheme.Scheme.AllKnownTypes() {
		if gvk.Version == runtime.APIVersionInternal || !hasObjectMeta(goType) {
			continue
		}
		b := &builtin{gvk: gvk, goType: goType}
		b.fields = sync.OnceValue(func() []builtinField { return fieldsOf(goType) })
		b.numeric = sync.OnceValue(func() []builtinField {
			return slices.DeleteFunc(slices.Clone(b.fields()), func(f builtinField) bool {
				return slices.Contains([]string{"string", "bool", "bytes", "any", "raw", "fields"}, f.kind)
			})
		})
		all = append(all, b)
	}
	slices.SortFunc(all, func(a, b *builtin) int { return strings.Compare(a.gvk.String(), b.gvk.String()) })
	return all
})

// kindText is the text of a kind in inputs, as in `apps/v1/Deployment`.
func (b *builtin) kindText() string {
	return b.gvk.GroupVersion().String() + "/" + b.gvk.Kind
}

var builtinsByText = sync.OnceValue(func() map[string]*builtin {
	all := map[string]*builtin{}
	for _, b := range builtins() {
		all[b.kindText()] = b
	}
	return all
})

// frequentKinds are generated more often than the others, because clients write them most.
var frequentKinds = []string{"apps/v1/Deployment", "v1/Pod", "v1/Service", "apps/v1/StatefulSet", "apps/v1/DaemonSet",
	"batch/v1/Job", "batch/v1/CronJob", "autoscaling/v2/HorizontalPodAutoscaler", "v1/Node", "v1/ResourceQuota", "v1/LimitRange",
	"policy/v1/PodDisruptionBudget", "scheduling.k8s.io/v1/PriorityClass", "v1/ConfigMap", "v1/PersistentVolumeClaim"}

func pickBuiltin(r *random) *builtin {
	if r.chance(40) {
		return builtinsByText()[pick(r, frequentKinds)]
	}
	return pick(r, builtins())
}

func hasObjectMeta(t reflect.Type) bool {
	field, ok := t.FieldByName("ObjectMeta")
	return ok && field.Type == reflect.TypeFor[metav1.ObjectMeta]()
}

// specialKinds are the types with a JSON form of their own.
var specialKinds = map[reflect.Type]string{
	reflect.TypeFor[resource.Quantity]():    "quantity",
	reflect.TypeFor[intstr.IntOrString]():   "intorstring",
	reflect.TypeFor[metav1.Time]():          "time",
	reflect.TypeFor[metav1.MicroTime]():     "microtime",
	reflect.TypeFor[metav1.Duration]():      "duration",
	reflect.TypeFor[metav1.FieldsV1]():      "fields",
	reflect.TypeFor[runtime.RawExtension](): "raw",
	reflect.TypeFor[runtime.Object]():       "any",
	reflect.TypeFor[[]byte]():               "bytes",
}

// kindOf returns the kind of a single value, or "" if the type has fields or elements.
func kindOf(t reflect.Type) string {
	if kind, ok := specialKinds[t]; ok {
		return kind
	}
	switch t.Kind() {
	case reflect.Struct, reflect.Slice, reflect.Map, reflect.Pointer:
		return ""
	case reflect.Interface:
		return "any"
	}
	return t.Kind().String()
}

// jsonField is a field of a struct under its JSON name.
type jsonField struct {
	name     string
	goType   reflect.Type
	required bool
}

var jsonFieldsCache sync.Map

// jsonFields returns the fields of a struct in Go's order, those of embedded structs included.
func jsonFields(t reflect.Type) []jsonField {
	if cached, ok := jsonFieldsCache.Load(t); ok {
		return cached.([]jsonField)
	}
	fields := []jsonField{}
	for i := range t.NumField() {
		field := t.Field(i)
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case name == "-" || !field.IsExported():
		case field.Anonymous && name == "":
			fields = append(fields, jsonFields(field.Type)...)
		default:
			fields = append(fields, jsonField{name, field.Type, !strings.Contains(options, "omit")})
		}
	}
	jsonFieldsCache.Store(t, fields)
	return fields
}

func jsonFieldNamed(t reflect.Type, name string) (jsonField, bool) {
	fields := jsonFields(t)
	i := slices.IndexFunc(fields, func(f jsonField) bool { return f.name == name })
	if i < 0 {
		return jsonField{}, false
	}
	return fields[i], true
}

func fieldsOf(t reflect.Type) []builtinField {
	all := []builtinField{}
	collectFields(t, "", nil, &all)
	slices.SortFunc(all, func(a, b builtinField) int { return strings.Compare(a.path, b.path) })
	return all
}

// collectFields appends the fields below path. A type that contains itself is entered once.
func collectFields(t reflect.Type, path string, parents []reflect.Type, all *[]builtinField) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if kind := kindOf(t); kind != "" {
		*all = append(*all, builtinField{strings.TrimPrefix(path, "."), kind})
		return
	}
	switch t.Kind() {
	case reflect.Slice:
		collectFields(t.Elem(), path+".0", parents, all)
	case reflect.Map:
		collectFields(t.Elem(), path+".key", parents, all)
	case reflect.Struct:
		if slices.Contains(parents, t) {
			return
		}
		for _, field := range jsonFields(t) {
			// They identify the type.
			if path == "" && (field.name == "apiVersion" || field.name == "kind") {
				continue
			}
			collectFields(field.goType, path+"."+field.name, append(slices.Clone(parents), t), all)
		}
	}
}

// placed returns the JSON text of an object of the type with one value at a path. Elements of lists get the fields that
// are always sent, because they identify the element. false: the type has no such path.
func placed(t reflect.Type, path []string, value string) (string, bool) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if len(path) == 0 {
		return value, true
	}
	switch {
	case kindOf(t) != "":
		return "", false
	case t.Kind() == reflect.Map:
		inner, ok := placed(t.Elem(), path[1:], value)
		return "{" + quoted(path[0]) + ":" + inner + "}", ok
	case t.Kind() == reflect.Slice:
		if path[0] != "0" {
			return "", false
		}
		inner, ok := placed(t.Elem(), path[1:], value)
		if ok && strings.HasPrefix(inner, "{") && len(path) > 1 {
			inner = withRequired(t.Elem(), path[1], inner)
		}
		return "[" + inner + "]", ok
	}
	field, ok := jsonFieldNamed(t, path[0])
	if !ok {
		return "", false
	}
	inner, ok := placed(field.goType, path[1:], value)
	return "{" + quoted(path[0]) + ":" + inner + "}", ok
}

// withRequired adds the required simple fields of an element to its JSON text, except the one that is present.
func withRequired(t reflect.Type, present, object string) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return object
	}
	added := ""
	for _, field := range jsonFields(t) {
		if !field.required || field.name == present {
			continue
		}
		switch kindOf(field.goType) {
		case "string":
			added += quoted(field.name) + `:"x",`
		case "int32", "int64":
			added += quoted(field.name) + ":1,"
		}
	}
	return "{" + added + object[1:]
}

// placedObject returns a whole object with one value at a path.
func placedObject(b *builtin, path, value string) (string, bool) {
	inner, ok := placed(b.goType, strings.Split(path, "."), value)
	if !ok {
		return "", false
	}
	return b.withType(inner), true
}

// withType adds apiVersion and kind to the JSON text of an object.
func (b *builtin) withType(object string) string {
	fields := fmt.Sprintf(`{"apiVersion":%q,"kind":%q`, b.gvk.GroupVersion(), b.gvk.Kind)
	if object == "{}" {
		return fields + "}"
	}
	return fields + "," + object[1:]
}

func quoted(text string) string { return string(mustEncode(text)) }

// object returns the JSON text of a generated object: some fields at random, with values that are mostly valid.
func (r *random) object(b *builtin) json.RawMessage {
	budget := r.between(1, 25)
	return json.RawMessage(b.withType(r.structText(b.goType, 0, &budget)))
}

// structText generates the required fields and some others; budget is the number of single values left.
func (r *random) structText(t reflect.Type, depth int, budget *int) string {
	fields := jsonFields(t)
	if len(fields) == 0 {
		return "{}"
	}
	parts := []string{}
	chosen := map[string]bool{}
	for range r.between(1, 4) {
		chosen[fields[r.below(len(fields))].name] = true
	}
	for _, field := range fields {
		if depth == 0 && (field.name == "apiVersion" || field.name == "kind") {
			continue
		}
		usual := depth == 0 && (field.name == "metadata" || field.name == "spec") || field.name == "name" && r.chance(80)
		if usual || chosen[field.name] && *budget > 0 || field.required && kindOf(field.goType) != "" && r.chance(90) {
			if value := r.valueText(field.goType, field.name, depth+1, budget); value != "" {
				parts = append(parts, quoted(field.name)+":"+value)
			}
		}
	}
	return "{" + strings.Join(parts, ",") + "}"
}

// valueText generates a value of a type; "" leaves it out.
func (r *random) valueText(t reflect.Type, name string, depth int, budget *int) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if kind := kindOf(t); kind != "" {
		*budget--
		return r.plausible(kind, name)
	}
	if depth > 12 {
		return ""
	}
	switch t.Kind() {
	case reflect.Slice:
		parts := []string{}
		for range r.between(0, 3) {
			if part := r.valueText(t.Elem(), name, depth+1, budget); part != "" {
				parts = append(parts, part)
			}
		}
		return "[" + strings.Join(parts, ",") + "]"
	case reflect.Map:
		parts := []string{}
		for i := range r.between(0, 3) {
			if part := r.valueText(t.Elem(), name, depth+1, budget); part != "" {
				key := pick(r, []string{"cpu", "memory", "pods", "a", "b.c/d", r.name()})
				parts = append(parts, quoted(key+strings.Repeat("x", i))+":"+part)
			}
		}
		return "{" + strings.Join(parts, ",") + "}"
	}
	return r.structText(t, depth, budget)
}

// words are values of fields with a fixed set of values.
var words = []string{"Always", "Never", "OnFailure", "TCP", "UDP", "ClusterIP", "RollingUpdate", "Recreate", "In", "NotIn",
	"Exists", "Gt", "Lt", "NoSchedule", "Utilization", "AverageValue", "Resource", "Container", "Percent", "Pods", "True",
	"False", "ReadWriteOnce", "Filesystem", "Indexed", "NonIndexed", "Max", "Min", "/x", "10.0.0.1", "*/5 * * * *", "UTC"}

// names are few, so that elements of two generated lists meet.
var fewNames = []string{"a", "b", "c", "x"}

// plausible generates the JSON text of a single value that the field can have, seldom another one.
func (r *random) plausible(kind, name string) string {
	if r.chance(2) {
		return pick(r, []string{"null", "true", `""`, "[]", "{}", r.number(), `"x"`})
	}
	switch kind {
	case "bool":
		return pick(r, []string{"true", "false"})
	case "string":
		if name == "name" || name == "key" {
			return quoted(pick(r, fewNames))
		}
		return quoted(pick(r, []string{r.name(), pick(r, words), pick(r, words), pick(r, fewNames), r.text()}))
	case "raw", "any":
		return fmt.Sprintf(`{"apiVersion":"v1","kind":"x","n":%s}`, r.number())
	case "fields":
		return `{"f:metadata":{}}`
	case "bytes":
		return `"` + strings.Repeat("AQID", r.below(4)) + pick(r, []string{"", "AQ==", "/+8="}) + `"`
	case "float64", "float32":
		return r.number()
	case "uint8":
		return strconv.Itoa(r.below(256))
	case "int32", "uint32":
		return fmt.Sprint(r.int32())
	case "int64", "uint64", "int":
		return fmt.Sprint(r.int64())
	}
	return r.special(kind)
}

// special generates values of the types with a JSON form of their own.
func (r *random) special(kind string) string {
	switch kind {
	case "quantity":
		if r.chance(20) {
			return r.number()
		}
		return quoted(r.quantity())
	case "intorstring":
		return pick(r, []string{fmt.Sprint(r.int32()), fmt.Sprint(r.int64()), quoted(fmt.Sprintf("%d%%", r.int32())), quoted(r.text())})
	case "time":
		return quoted(r.timeText(0))
	case "microtime":
		return quoted(r.timeText(6))
	case "duration":
		return quoted(r.durationText())
	}
	return `"x"`
}

// timeText returns an RFC 3339 time, mostly with the number of digits of a second's fraction.
func (r *random) timeText(digits int) string {
	if r.chance(10) {
		digits = r.between(0, 12)
	}
	fraction := ""
	if digits > 0 {
		fraction = "." + fmt.Sprintf("%0*d", digits, r.below(1_000_000))[:digits]
	}
	year := pick(r, []int{1, 1677, 1969, 1970, 2024, 2026, 2038, 2262, 9999, r.between(0, 9999)})
	zone := pick(r, []string{"Z", "Z", "Z", "+00:00", "+01:00", "-23:59", "+14:00"})
	return fmt.Sprintf("%04d-%02d-%02dT%02d:%02d:%02d%s%s", year, r.between(1, 12), r.between(1, 31), r.below(24), r.below(60),
		r.below(61), fraction, zone)
}

// durationText returns a text for time.ParseDuration, valid or nearly.
func (r *random) durationText() string {
	units := []string{"ns", "us", "µs", "ms", "s", "m", "h", "h", "s", "d", ""}
	switch r.below(6) {
	case 0:
		return pick(r, []string{"", "0", "-1ns", "9223372036854775807ns", "9223372036854775808ns", "-9223372036854775808ns",
			"2562047h47m16.854775807s", "2562047h47m16.854775808s", ".5s", "1.s", "1e3s", "+1h", "--1s"})
	case 1:
		return fmt.Sprintf("%d.%d%s", r.between(-99, 999), r.below(1_000_000_000), pick(r, units))
	case 2:
		return fmt.Sprintf("%d.%0*d%s", r.between(0, 99), r.between(1, 30), r.below(1000), pick(r, units))
	case 3:
		return fmt.Sprintf("%d%s", r.int64(), pick(r, units))
	default:
		return fmt.Sprintf("%dh%dm%d.%dsx", r.below(99), r.below(99), r.below(99), r.below(999999))[:r.between(3, 9)]
	}
}

// decodeJSON decodes as the apiserver does: integers become int64 if they fit, other numbers float64.
func decodeJSON(text string) (any, error) {
	var value any
	err := utiljson.Unmarshal([]byte(text), &value)
	return value, err
}

// decodeObject decodes a JSON object.
func decodeObject(text []byte) (map[string]any, error) {
	object := map[string]any{}
	err := utiljson.Unmarshal(text, &object)
	return object, err
}

// numberClass names the range of a number's JSON text, for classes of differences.
func numberClass(text string) string {
	value, err := decodeJSON(text)
	if err != nil {
		return "no JSON"
	}
	switch v := value.(type) {
	case int64:
		return integerClass(v)
	case float64:
		return floatClass(v)
	case nil:
		return "null"
	case string:
		return "text"
	case bool:
		return "boolean"
	}
	return "list or object"
}

func integerClass(v int64) string {
	switch {
	case v != int64(int32(v)):
		return "integer beyond int32"
	case v < 0:
		return "negative integer"
	}
	return "integer"
}

func floatClass(v float64) string {
	sign := "float"
	if v < 0 {
		sign, v = "negative float", -v
	}
	switch {
	case v >= 1<<63:
		return sign + " beyond int64"
	case v >= 1<<31:
		return sign + " beyond int32"
	case v != float64(int64(v)):
		return sign + " with fraction"
	}
	return sign
}

// clockDefaults matches the fields that upstream's defaults and strategies set to the current time.
var clockDefaults = regexp.MustCompile(`"(timeAdded|lastPhaseTransitionTime)":"[^"]*"`)

// withoutClock returns the JSON text of an object that was defaulted, without the times of the run.
func withoutClock(object runtime.Object) (json.RawMessage, error) {
	text, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	return clockDefaults.ReplaceAll(text, []byte(`"$1":"now"`)), nil
}
