// Subjects about custom resources: structural schemas, pruning, defaults, validation and printer columns.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/install"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crdvalidation "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	structural "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresource/tableconvertor"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	sigsjson "sigs.k8s.io/json"
)

// celContext is the context of validations, which only read its deadline.
var celContext = context.Background()

// customScheme is the scheme of CustomResourceDefinitions.
var customScheme = sync.OnceValue(func() *runtime.Scheme {
	scheme := runtime.NewScheme()
	install.Install(scheme)
	return scheme
})

// decodeSchema decodes a schema from v1 to the internal version.
func decodeSchema(text json.RawMessage) (*apiextensions.JSONSchemaProps, error) {
	var v1 apiextensionsv1.JSONSchemaProps
	if err := sigsjson.UnmarshalCaseSensitivePreserveInts(text, &v1); err != nil {
		return nil, err
	}
	internal := &apiextensions.JSONSchemaProps{}
	err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(&v1, internal, nil)
	return internal, err
}

func structuralSchema(text json.RawMessage) (*structural.Structural, error) {
	schema, err := decodeSchema(text)
	if err != nil {
		return nil, err
	}
	return structural.NewStructural(schema)
}

// customInput is a schema and an object of the custom resource.
type customInput struct {
	Schema json.RawMessage `json:"schema"`
	Object json.RawMessage `json:"object"`
}

// customLeaf is a schema of a single value and values for it, all as JSON text.
type customLeaf struct{ schema, value string }

// limits returns constraints on a number, with their leading comma.
func (r *random) limits() string {
	parts := ""
	for _, name := range []string{"minimum", "maximum", "multipleOf"} {
		if r.chance(25) {
			parts += fmt.Sprintf(`,%q:%s`, name, r.customNumber())
			if name != "multipleOf" && r.chance(20) {
				parts += fmt.Sprintf(`,"exclusive%s":true`, strings.ToUpper(name[:1])+name[1:])
			}
		}
	}
	return parts
}

// customNumber returns a number of ordinary or extreme size.
func (r *random) customNumber() string {
	switch r.below(4) {
	case 0:
		return fmt.Sprintf("%d.%d", r.below(20), r.below(1000))
	case 1:
		return fmt.Sprint(r.between(1, 1000))
	case 2:
		return pick(r, []string{"0.1", "0.01", "0.3", "1e-5", "3", "1e3", "0.7", "2.5", "1e-300", "4.35"})
	}
	return r.number()
}

// lengths returns limits of a size, with their leading comma.
func (r *random) lengths(what string) string {
	parts := ""
	for _, name := range []string{"min", "max"} {
		if r.chance(40) {
			parts += fmt.Sprintf(`,"%s%s":%d`, name, what, pick(r, []int64{0, 1, 2, 5, r.int64()}))
		}
	}
	return parts
}

var stringFormats = []string{"date-time", "date", "duration", "byte", "uuid", "ipv4", "ipv6", "cidr", "email", "hostname", "uri", "int32",
	"password", "isbn", "creditcard", "mac", "hexcolor", "rgbcolor", "ssn", "bsonobjectid", "datetime", "k8s-short-name"}

func (r *random) numberLeaf() customLeaf {
	kind, format := pick(r, []string{"integer", "number"}), ""
	if r.chance(50) {
		format = fmt.Sprintf(`,"format":%q`, pick(r, []string{"int32", "int64", "float", "double", "byte"}))
	}
	extra := r.limits()
	if r.chance(20) {
		extra += fmt.Sprintf(`,"enum":[%s,%s]`, r.customNumber(), pick(r, []string{r.customNumber(), fmt.Sprint(r.int64())}))
	}
	return customLeaf{fmt.Sprintf(`{"type":%q%s%s`, kind, format, extra), r.customNumber()}
}

func (r *random) stringLeaf() customLeaf {
	schema := `{"type":"string"` + r.lengths("Length")
	if r.chance(60) {
		schema += fmt.Sprintf(`,"format":%q`, pick(r, stringFormats))
	}
	if r.chance(20) {
		schema += fmt.Sprintf(`,"pattern":%q`, pick(r, []string{"^a+$", `^\d+$`, `^\p{L}*$`, "[[:space:]]", "(?i)k"}))
	}
	return customLeaf{schema, quoted(pick(r, []string{r.text(), r.durationText(), r.timeText(3), r.number(), "AQID", "::1", "10.0.0.0/8"}))}
}

func (r *random) intOrStringLeaf() customLeaf {
	return customLeaf{`{"x-kubernetes-int-or-string":true` + r.limits(), pick(r, []string{r.number(), quoted(r.number()), quoted("10%")})}
}

func (r *random) listLeaf() customLeaf {
	item, values := r.leaf(), []string{}
	for range r.below(4) {
		values = append(values, pick(r, []string{item.value, r.number()}))
	}
	extra := r.lengths("Items") + pick(r, []string{"", "", `,"x-kubernetes-list-type":"set"`})
	if r.chance(8) {
		extra += `,"x-kubernetes-validations":[{"rule":"self.all(x, self.exists(y, x == y))"}]`
	}
	return customLeaf{`{"type":"array"` + extra + `,"items":` + item.schema + "}", "[" + strings.Join(values, ",") + "]"}
}

func (r *random) mapLeaf() customLeaf {
	item := r.leaf()
	return customLeaf{`{"type":"object"` + r.lengths("Properties") + `,"additionalProperties":` + item.schema + "}",
		`{"a":` + item.value + `,"b":` + r.number() + "}"}
}

// leaf returns a schema without its closing brace, so that a default can follow.
func (r *random) leaf() customLeaf {
	l := pick(r, []func() customLeaf{r.numberLeaf, r.numberLeaf, r.numberLeaf, r.stringLeaf, r.intOrStringLeaf})()
	if r.chance(20) {
		l.schema += `,"default":` + pick(r, []string{l.value, r.number()})
	}
	if r.chance(10) {
		l.schema += `,"nullable":true`
	}
	l.schema += "}"
	return l
}

func generateCustom(r *random) customInput {
	properties, values := []string{}, []string{}
	for _, name := range fewNames[:pick(r, []int{1, 1, 1, 2, 3})] {
		l := pick(r, []func() customLeaf{r.leaf, r.leaf, r.leaf, r.listLeaf, r.mapLeaf})()
		properties = append(properties, quoted(name)+":"+l.schema)
		if r.chance(85) {
			values = append(values, quoted(name)+":"+pick(r, []string{l.value, l.value, l.value, r.customNumber(), "null"}))
		}
	}
	if r.chance(20) {
		values = append(values, `"unknown":`+r.number())
	}
	return customInput{json.RawMessage(`{"type":"object","properties":{` + strings.Join(properties, ",") + "}}"),
		json.RawMessage("{" + strings.Join(values, ",") + "}")}
}

// validateDefinition returns the errors that a CustomResourceDefinition with the schema gets.
func validateDefinition(schema json.RawMessage) ([]string, error) {
	text := fmt.Sprintf(`{"metadata":{"name":"as.b.example"},"spec":{"group":"b.example","scope":"Namespaced",
		"names":{"plural":"as","singular":"a","kind":"A","listKind":"AList"},"versions":[{"name":"v1","served":true,"storage":true,
		"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":%s}}}}]},"status":{"storedVersions":["v1"]}}`, schema)
	v1 := &apiextensionsv1.CustomResourceDefinition{}
	if err := sigsjson.UnmarshalCaseSensitivePreserveInts([]byte(text), v1); err != nil {
		return nil, err
	}
	customScheme().Default(v1)
	internal := &apiextensions.CustomResourceDefinition{}
	if err := customScheme().Convert(v1, internal, nil); err != nil {
		return nil, err
	}
	return errorTexts(crdvalidation.ValidateCustomResourceDefinition(celContext, internal)), nil
}

// errorTexts are the sorted texts of errors: some validations visit maps in Go's random order.
func errorTexts(errs field.ErrorList) []string {
	texts := []string{}
	for _, err := range errs {
		texts = append(texts, err.Error())
	}
	slices.Sort(texts)
	return texts
}

// customObject prunes, defaults and validates an object as the handler of custom resources does.
func customObject(input customInput) (any, error) {
	props, err := decodeSchema(input.Schema)
	if err != nil {
		return nil, err
	}
	schema, err := structural.NewStructural(props)
	if err != nil {
		return nil, err
	}
	object, err := decodeObject(input.Object)
	if err != nil {
		return nil, err
	}
	validator, _, err := validation.NewSchemaValidator(props)
	if err != nil {
		return nil, err
	}
	pruned := pruning.PruneWithOptions(object, schema, true, structural.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})
	slices.Sort(pruned)
	defaulting.PruneNonNullableNullsWithoutDefaults(object, schema)
	defaulting.Default(object, schema)
	errs := errorTexts(validation.ValidateCustomResource(nil, object, validator))
	errs = append(errs, errorTexts(listtype.ValidateListSetsAndMaps(nil, schema, object))...)
	return map[string]any{"object": exactValue(object), "pruned": pruned, "errors": errs}, nil
}

// customClass names the keywords of the schema whose numbers are extreme.
func customClass(input customInput) string {
	schema, err := decodeObject(input.Schema)
	if err != nil {
		return ""
	}
	classes := customClasses(schema)
	slices.Sort(classes)
	classes = slices.Compact(classes)
	for _, minor := range []string{customFraction, customDefault} {
		if len(classes) > 1 {
			classes = slices.DeleteFunc(classes, func(class string) bool { return class == minor })
		}
	}
	return strings.Join(classes, ", ")
}

// customFraction is the class of a schema whose only special number is a fraction.
const customFraction = "multipleOf with fraction"

// customDefault is the class of a schema with an extreme default. The default is an ordinary value for its limits.
const customDefault = "default beyond int64"

// customClasses returns a class for each extreme number in a schema.
func customClasses(schema map[string]any) []string {
	classes := []string{}
	for keyword, value := range schema {
		switch v := value.(type) {
		case map[string]any:
			classes = append(classes, customClasses(v)...)
		case []any:
			if slices.Contains(v, any(int64(math.MinInt64))) || slices.Contains(v, any(int64(math.MaxInt64))) {
				classes = append(classes, keyword+" at the limit of int64")
			}
		case int64:
			// A limit is a float64, which is 2^63 then.
			if v >= 0 && float64(v) == 1<<63 {
				classes = append(classes, keyword+" beyond int64")
			}
		case float64:
			switch class := floatClass(v); {
			case strings.HasSuffix(class, "beyond int64"):
				classes = append(classes, keyword+" beyond int64")
			case keyword == "multipleOf":
				classes = append(classes, customFraction)
			}
		}
	}
	return classes
}

// columnInput is a printer column and the value that it shows.
type columnInput struct {
	Type   string `json:"type"`
	Format string `json:"format"`
	// Value is JSON text.
	Value string `json:"value"`
}

func generateColumn(r *random) columnInput {
	// Columns of type date show the time since then.
	kind := pick(r, []string{"integer", "integer", "number", "number", "string", "boolean"})
	value := pick(r, []string{r.number(), r.number(), r.number(), quoted(r.number()), "true", `[1,2e0]`, `{"a":1e30}`, "null", quoted(r.text())})
	return columnInput{kind, pick(r, []string{"", "", "int32", "int64", "float", "double", "byte", "password"}), value}
}

func printColumn(input columnInput) (any, error) {
	value, err := decodeJSON(input.Value)
	if err != nil || input.Type == "date" {
		return nil, errNotAnInput
	}
	convertor, err := tableconvertor.New([]apiextensionsv1.CustomResourceColumnDefinition{
		{Name: "N", Type: input.Type, Format: input.Format, JSONPath: ".n"},
		{Name: "M", Type: input.Type, Format: input.Format, JSONPath: ".l[*]"},
	})
	if err != nil {
		return nil, err
	}
	object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "a/v1", "kind": "A", "n": value, "l": []any{value, value}}}
	table, err := convertor.ConvertToTable(celContext, object, &metav1.TableOptions{NoHeaders: true})
	if err != nil {
		return nil, err
	}
	return table.Rows[0].Cells, nil
}

func init() {
	define(definition[json.RawMessage]{
		name:     "custom.definition",
		about:    "validation of a CustomResourceDefinition with a generated schema, its defaults included",
		generate: func(r *random) json.RawMessage { return generateCustom(r).Schema },
		class:    func(schema json.RawMessage) string { return customClass(customInput{Schema: schema}) },
		evaluate: func(schema json.RawMessage) (any, error) { return validateDefinition(schema) },
	})
	define(definition[customInput]{
		name:     "custom.object",
		about:    "pruning, defaulting and validation of a custom resource with a generated structural schema",
		generate: generateCustom, class: customClass, evaluate: customObject,
	})
	define(definition[columnInput]{
		name:     "custom.column",
		about:    "printer columns of custom resources through tableconvertor",
		generate: generateColumn, evaluate: printColumn,
		class: func(input columnInput) string { return input.Type + ", " + numberClass(input.Value) },
	})
}
