// Subjects about encodings: JSON, YAML, protobuf and CBOR of built-in objects, defaults and versions.
package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor"
	serializerjson "k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	apitesting "k8s.io/kubernetes/pkg/api/testing"
	"sigs.k8s.io/yaml"
)

// encodings are the serializers of the apiserver, by the last part of their media types.
var encodings = sync.OnceValue(func() map[string]runtime.Serializer {
	scheme := legacyscheme.Scheme
	return map[string]runtime.Serializer{
		"json": serializerjson.NewSerializerWithOptions(serializerjson.DefaultMetaFactory, scheme, scheme,
			serializerjson.SerializerOptions{Strict: true}),
		"yaml": serializerjson.NewSerializerWithOptions(serializerjson.DefaultMetaFactory, scheme, scheme,
			serializerjson.SerializerOptions{Yaml: true, Strict: true}),
		"protobuf": protobuf.NewSerializer(scheme, scheme),
		"cbor":     cbor.NewSerializer(scheme, scheme, cbor.Strict(true)),
	}
})

var encodingNames = []string{"json", "yaml", "protobuf", "cbor"}

// encode returns the bytes of the object in an encoding.
func encode(name string, object runtime.Object) ([]byte, error) {
	var buffer bytes.Buffer
	err := encodings()[name].Encode(object, &buffer)
	return buffer.Bytes(), err
}

// decode decodes to the typed object.
func decode(name string, data []byte, b *builtin) (runtime.Object, error) {
	object, _, err := encodings()[name].Decode(data, &b.gvk, nil)
	return object, err
}

// digest identifies bytes in an answer.
func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return fmt.Sprintf("%d bytes, %s", len(data), hex.EncodeToString(sum[:8]))
}

// inEncodings returns, for each encoding, the digest of the object's bytes, and whether they decode to the same object.
func inEncodings(b *builtin, object runtime.Object) map[string]any {
	answer := map[string]any{}
	for _, name := range encodingNames {
		data, err := encode(name, object)
		if err != nil {
			answer[name] = err.Error()
			continue
		}
		again, err := decode(name, data, b)
		if err != nil {
			answer[name] = map[string]string{"bytes": digest(data), "error": err.Error()}
			continue
		}
		answer[name] = map[string]any{"bytes": digest(data), "same": apiequality.Semantic.DeepEqual(object, again)}
	}
	return answer
}

// typedInput decodes a generated object strictly. Its error is an answer: a POST of the object gets the same one.
func typedInput(text json.RawMessage) (*builtin, runtime.Object, error) {
	b, err := builtinOf(text)
	if err != nil {
		return nil, nil, err
	}
	object, err := decode("json", text, b)
	return b, object, err
}

// hub is the internal version of the type's group.
func (b *builtin) hub() schema.GroupVersion {
	return schema.GroupVersion{Group: b.gvk.Group, Version: runtime.APIVersionInternal}
}

// internalInput decodes a generated object strictly and converts it, with defaults, to the internal version.
func internalInput(text json.RawMessage) (*builtin, runtime.Object, error) {
	b, object, err := typedInput(text)
	if err != nil {
		return nil, nil, err
	}
	legacyscheme.Scheme.Default(object)
	internal, err := legacyscheme.Scheme.ConvertToVersion(object, b.hub())
	return b, internal, err
}

func encodeObject(text json.RawMessage) (any, error) {
	b, object, err := typedInput(text)
	if err != nil {
		return nil, err
	}
	return map[string]any{"object": object, "encodings": inEncodings(b, object)}, nil
}

// inVersions returns the object, or the error, in each version of its group.
func inVersions(internal runtime.Object, kind schema.GroupKind) map[string]any {
	answer := map[string]any{}
	for _, version := range legacyscheme.Scheme.PrioritizedVersionsForGroup(kind.Group) {
		if !legacyscheme.Scheme.Recognizes(version.WithKind(kind.Kind)) {
			continue
		}
		object, err := legacyscheme.Scheme.ConvertToVersion(internal, version)
		if err != nil {
			answer[version.Version] = err.Error()
			continue
		}
		text, err := withoutClock(object)
		if err != nil {
			answer[version.Version] = err.Error()
			continue
		}
		answer[version.Version] = text
	}
	return answer
}

// convertObject applies the defaults of the object's version, and converts it to each version.
func convertObject(text json.RawMessage) (any, error) {
	b, internal, err := internalInput(text)
	if err != nil {
		return nil, err
	}
	return inVersions(internal, b.gvk.GroupKind()), nil
}

// fuzzedInput is an object of upstream's fuzzer.
type fuzzedInput struct {
	Kind string `json:"kind"`
	Seed int64  `json:"seed"`
}

func generateFuzzed(r *random) fuzzedInput {
	b := pick(r, builtins())
	// Upstream's fuzzer gives a taint the current time.
	for b.gvk.Kind == "DeviceTaintRule" || b.gvk.Kind == "ResourceSlice" {
		b = pick(r, builtins())
	}
	return fuzzedInput{b.kindText(), int64(r.uint64() >> 1)}
}

// fuzzedObject encodes an object that upstream's round-trip tests would generate, in each version.
func fuzzedObject(input fuzzedInput) (any, error) {
	b := builtinsByText()[input.Kind]
	if b == nil {
		return nil, errNotAnInput
	}
	internal, err := legacyscheme.Scheme.New(b.hub().WithKind(b.gvk.Kind))
	if err != nil {
		return nil, err
	}
	fuzzer.FuzzerFor(apitesting.FuzzerFuncs, rand.NewSource(input.Seed), legacyscheme.Codecs).Fill(internal)
	object, err := legacyscheme.Scheme.ConvertToVersion(internal, b.gvk.GroupVersion())
	if err != nil {
		return nil, err
	}
	text, err := withoutClock(object)
	if err != nil {
		return nil, err
	}
	versions := map[string]string{}
	for version, answer := range inVersions(internal, b.gvk.GroupKind()) {
		versions[version] = digest(mustEncode(answer))
	}
	return map[string]any{"object": digest(text), "encodings": inEncodings(b, object), "versions": versions}, nil
}

// decodeField decodes an object with one value in one field from each encoding that a client can send it in.
func decodeField(f fieldValue) (any, error) {
	b, text, err := f.object()
	if err != nil {
		return nil, err
	}
	answer := map[string]any{}
	add := func(name string, data []byte) {
		object, err := decode(name, data, b)
		if err != nil {
			answer[name] = err.Error()
			return
		}
		answer[name] = object
	}
	add("json", []byte(text))
	add("yaml", []byte(text))
	object, err := decodeObject([]byte(text))
	if err != nil {
		return nil, err
	}
	data, err := encode("cbor", &unstructured.Unstructured{Object: object})
	if err != nil {
		return nil, err
	}
	add("cbor", data)
	return answer, nil
}

// damaged is an encoded object with some bytes replaced.
type damaged struct {
	Object   json.RawMessage `json:"object"`
	Encoding string          `json:"encoding"`
	Edits    []edit          `json:"edits"`
}

// edit replaces the byte at a position, modulo the length.
type edit struct {
	At    uint16 `json:"at"`
	Value uint8  `json:"value"`
}

func generateDamaged(r *random) damaged {
	d := damaged{Object: r.object(pickBuiltin(r)), Encoding: pick(r, []string{"json", "protobuf", "cbor"})}
	for range r.between(1, 4) {
		d.Edits = append(d.Edits, edit{uint16(r.below(400)), uint8(pick(r, []int{0, 1, 127, 128, 255, r.below(256), r.below(256)}))})
	}
	return d
}

func decodeDamaged(d damaged) (any, error) {
	if !slices.Contains(encodingNames, d.Encoding) {
		return nil, errNotAnInput
	}
	b, object, err := typedInput(d.Object)
	if err != nil {
		return nil, errNotAnInput
	}
	data, err := encode(d.Encoding, object)
	if err != nil {
		return nil, err
	}
	for _, e := range d.Edits {
		data[int(e.At)%len(data)] = e.Value
	}
	return decode(d.Encoding, data, b)
}

// scalars are spellings of YAML 1.1 and 1.2 that readers take differently.
var scalars = []string{"0x1F", "0o17", "017", "0b101", "1_000", "1:30", "190:20:30", ".inf", "-.inf", ".nan", "+1", "+.5", ".5", "1.",
	"~", "null", "yes", "No", "on", "OFF", "y", "true", "2026-11-26", "2026-11-26T01:02:03Z", "1e3", "1E+3", "1.0e3", "0x1p3",
	"!!int 3", "!!float 3", "!!str 3", "!!binary aGk=", "- 1", "&a 1", "|-\n  x", "'3'", `"\u0041"`, "0xFFFFFFFFFFFFFFFF",
	"-0x8000000000000000", "0.1e-400", "1e400", "<<", "=", "[1, 2e0]", "{a: 1, a: 2}"}

// scalar returns a YAML scalar.
func (r *random) scalar() string {
	if r.chance(50) {
		return pick(r, scalars)
	}
	return pick(r, []string{r.number(), "-" + r.number(), "+" + r.number(), "0x" + fmt.Sprint(r.int64()), r.quantity(), r.durationText(),
		strings.ReplaceAll(r.text(), "\n", " ")})
}

// yamlValue decodes YAML as the apiserver does, by way of JSON.
func yamlValue(scalar string) (any, error) {
	text, err := yaml.YAMLToJSONStrict([]byte("a: " + scalar + "\n"))
	if err != nil {
		return nil, err
	}
	var value any
	if err := utiljson.Unmarshal(text, &value); err != nil {
		return map[string]string{"json": string(text), "error": err.Error()}, nil
	}
	back, err := yaml.Marshal(value)
	return map[string]string{"json": string(text), "value": exactValue(value), "yaml": string(back)}, err
}

// exactValue is the text of a decoded JSON value with the Go types and all bits of its numbers.
func exactValue(value any) string {
	switch v := value.(type) {
	case float64:
		return "float " + exact(v)
	case map[string]any:
		parts := []string{}
		for key, element := range v {
			parts = append(parts, key+": "+exactValue(element))
		}
		slices.Sort(parts)
		return "{" + strings.Join(parts, ", ") + "}"
	case []any:
		parts := []string{}
		for _, element := range v {
			parts = append(parts, exactValue(element))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	}
	return fmt.Sprintf("%T %v", value, value)
}

// jsonNumber decodes a number as in a custom resource, and encodes it in JSON and CBOR, as its storage does.
func jsonNumber(text string) (any, error) {
	value, err := decodeJSON(text)
	if err != nil {
		return nil, err
	}
	object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "a/v1", "kind": "A", "n": value}}
	data, err := encode("cbor", object)
	if err != nil {
		return nil, err
	}
	decoded, _, err := encodings()["cbor"].Decode(data, nil, &unstructured.Unstructured{})
	if err != nil {
		return nil, err
	}
	return map[string]any{
		"value": exactValue(value), "json": string(mustEncode(value)), "cbor": hex.EncodeToString(data),
		"from-cbor": exactValue(decoded.(*unstructured.Unstructured).Object["n"]),
	}, nil
}

func init() {
	define(definition[json.RawMessage]{
		name:     "encoding.object",
		about:    "strict JSON decoding of a generated built-in object; its JSON, YAML, protobuf and CBOR, and their decoding",
		generate: func(r *random) json.RawMessage { return r.object(pickBuiltin(r)) },
		class:    builtinKind, evaluate: encodeObject,
	})
	define(definition[json.RawMessage]{
		name:     "encoding.versions",
		about:    "defaulting and conversion of a generated built-in object to every version through legacyscheme",
		generate: func(r *random) json.RawMessage { return r.object(pickBuiltin(r)) },
		class:    builtinKind, evaluate: convertObject,
	})
	define(definition[fuzzedInput]{
		name:     "encoding.fuzzed",
		about:    "an object of upstream's fuzzer functions in every encoding and every version",
		generate: generateFuzzed, evaluate: fuzzedObject,
		class: func(input fuzzedInput) string { return input.Kind },
	})
	define(definition[fieldValue]{
		name:     "encoding.field",
		about:    "decoding of a built-in object with one value in one field from JSON, YAML and CBOR",
		generate: generateFieldValue, class: fieldValue.class, evaluate: decodeField,
	})
	define(definition[damaged]{
		name:     "encoding.damaged",
		about:    "decoding of a built-in object from JSON, protobuf or CBOR with replaced bytes",
		generate: generateDamaged, evaluate: decodeDamaged,
		class: func(d damaged) string { return d.Encoding },
	})
	define(definition[string]{
		name:     "encoding.yaml",
		about:    "sigs.k8s.io/yaml to JSON and to a value, and back",
		generate: (*random).scalar, evaluate: yamlValue,
	})
	define(definition[string]{
		name:     "encoding.number",
		about:    "a JSON number decoded as in a custom resource, and encoded in JSON and CBOR",
		generate: (*random).number, class: numberClass, evaluate: jsonNumber,
	})
}
