// Subjects about CEL: values, actual cost and estimated cost in the apiserver's environment, and rules of custom resources.
package main

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/checker"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structural "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	apiextensionscel "k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	"k8s.io/apimachinery/pkg/util/version"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/common"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/cel/library"
)

// celEnv is the environment of admission policies with one dynamic variable.
var celEnv = sync.OnceValue(func() *cel.Env {
	set, err := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()).Extend(environment.VersionedOptions{
		IntroducedVersion: version.MajorMinor(1, 0),
		EnvOptions:        []cel.EnvOption{cel.Variable("object", cel.DynType)},
	})
	if err != nil {
		panic(err)
	}
	return set.NewExpressionsEnv()
})

// celInput is an expression and the value of its variable `object`.
type celInput struct {
	Expression string          `json:"expression"`
	Object     json.RawMessage `json:"object"`
}

// celUnbounded estimates without limits of sizes, as for a schema without limits.
type celUnbounded struct{}

func (celUnbounded) EstimateSize(checker.AstNode) *checker.SizeEstimate { return nil }

func (celUnbounded) EstimateCallCost(string, string, *checker.AstNode, []checker.AstNode) *checker.CallEstimate {
	return nil
}

func evaluateCEL(input celInput) (any, error) {
	object, err := decodeObject(input.Object)
	if err != nil {
		return nil, errNotAnInput
	}
	ast, issues := celEnv().Compile(input.Expression)
	if issues.Err() != nil {
		return nil, issues.Err()
	}
	estimate, err := celEnv().EstimateCost(ast, &library.CostEstimator{SizeEstimator: celUnbounded{}})
	if err != nil {
		return nil, err
	}
	program, err := celEnv().Program(ast)
	if err != nil {
		return nil, err
	}
	value, details, err := program.Eval(map[string]any{"object": object})
	answer := map[string]any{"type": ast.OutputType().String(), "min": estimate.Min, "max": estimate.Max}
	if details != nil && details.ActualCost() != nil {
		answer["cost"] = *details.ActualCost()
	}
	if err != nil {
		answer["error"] = err.Error()
	} else {
		answer["value"] = celText(value)
	}
	return answer, nil
}

// celText is the text of a value with all bits of its numbers.
func celText(value ref.Val) string {
	switch v := value.(type) {
	case types.Double:
		return "double " + exact(float64(v))
	case types.Bytes:
		return "bytes " + hex.EncodeToString(v)
	case types.Duration:
		return "duration " + v.Duration.String()
	case types.Timestamp:
		return "timestamp " + v.Time.UTC().Format(time.RFC3339Nano)
	case traits.Mapper:
		return celMapText(v)
	case traits.Lister:
		parts := []string{}
		for i := v.Iterator(); i.HasNext() == types.True; {
			parts = append(parts, celText(i.Next()))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	}
	return fmt.Sprintf("%s %v", value.Type().TypeName(), value.Value())
}

func celMapText(m traits.Mapper) string {
	parts := []string{}
	for i := m.Iterator(); i.HasNext() == types.True; {
		key := i.Next()
		parts = append(parts, celText(key)+": "+celText(m.Get(key)))
	}
	slices.Sort(parts)
	return "{" + strings.Join(parts, ", ") + "}"
}

// celObjectFields are the fields of generated values of `object`; each is of any JSON type.
var celObjectFields = []string{"i", "j", "d", "e", "s", "q"}

// celObject returns the JSON text of the variable.
func (r *random) celObject() json.RawMessage {
	values := []string{fmt.Sprint(r.int64()), r.number(), r.number(), fmt.Sprintf("%d.%d", r.between(-99, 99), r.below(1000)),
		quoted(r.text()), quoted(r.quantity())}
	parts := []string{}
	for i, name := range celObjectFields {
		parts = append(parts, quoted(name)+":"+values[i])
	}
	return json.RawMessage("{" + strings.Join(parts, ",") + "}")
}

// celInt returns an expression of type int; depth limits the expressions in it.
func (r *random) celInt(depth int) string {
	if depth <= 0 || r.chance(25) {
		return pick(r, []string{fmt.Sprint(r.int64()), "int(object.i)", "int(object.d)", "object.i", "-9223372036854775808", "1"})
	}
	switch r.below(9) {
	case 0, 1:
		return "(" + r.celInt(depth-1) + pick(r, []string{" + ", " - ", " * ", " / ", " % "}) + r.celInt(depth-1) + ")"
	case 2, 3:
		return "int(" + r.celDouble(depth-1) + ")"
	case 4:
		return "int(" + r.celUint(depth-1) + ")"
	case 5:
		return pick(r, []string{"size(" + r.celText(depth-1) + ")", "int(" + r.celText(depth-1) + ")", r.celText(depth-1) + ".indexOf('a')"})
	case 6:
		return r.celTimestamp(depth-1) + pick(r, []string{".getFullYear()", ".getDayOfYear()", ".getMilliseconds()", ".getHours('+05:30')"})
	case 7:
		return r.celDuration(depth-1) + pick(r, []string{".getHours()", ".getMinutes()", ".getSeconds()", ".getMilliseconds()"})
	default:
		return r.celQuantity(depth-1) + pick(r, []string{".asInteger()", ".sign()", ".compareTo(" + r.celQuantity(depth-1) + ")"})
	}
}

// celUint returns an expression of type uint.
func (r *random) celUint(depth int) string {
	if depth <= 0 || r.chance(25) {
		return pick(r, []string{fmt.Sprintf("%du", r.uint64()), fmt.Sprintf("%du", r.below(100)), "uint(object.i)", "uint(object.d)"})
	}
	return pick(r, []string{"uint(" + r.celDouble(depth-1) + ")", "uint(" + r.celInt(depth-1) + ")", "uint(" + r.celText(depth-1) + ")",
		"(" + r.celUint(depth-1) + pick(r, []string{" + ", " - ", " * ", " / ", " % "}) + r.celUint(depth-1) + ")"})
}

// celDouble returns an expression of type double.
func (r *random) celDouble(depth int) string {
	if depth <= 0 || r.chance(25) {
		return pick(r, []string{"double(" + r.number() + ")", "double(object.d)", "double(object.e)", "double(object.i)", "object.d",
			fmt.Sprintf("%d.%d", r.between(-99, 99), r.below(1000)), "1e30", "9.223372036854775807e18", "1.8446744073709551616e19",
			"-9.2233720368547758e18", "double('NaN')", "double('Infinity')", "-1e19", "0.1"})
	}
	switch r.below(4) {
	case 0, 1:
		return "(" + r.celDouble(depth-1) + pick(r, []string{" + ", " - ", " * ", " / "}) + r.celDouble(depth-1) + ")"
	case 2:
		return "double(" + pick(r, []string{r.celInt(depth - 1), r.celUint(depth - 1), r.celText(depth - 1)}) + ")"
	default:
		return r.celQuantity(depth-1) + ".asApproximateFloat()"
	}
}

// celText returns an expression of type string.
func (r *random) celText(depth int) string {
	if depth <= 0 || r.chance(20) {
		return pick(r, []string{celQuoted(r.text()), celQuoted(r.number()), "object.s", "string(object.d)", "'a'"})
	}
	switch r.below(6) {
	case 0:
		return "string(" + pick(r, []string{r.celDouble(depth - 1), r.celInt(depth - 1), r.celUint(depth - 1), r.celDuration(depth - 1),
			r.celTimestamp(depth - 1)}) + ")"
	case 1, 2:
		verb := pick(r, []string{"%f", "%.3f", "%e", "%.10e", "%s", "%d", "%x", "%o", "%b", "%.17f", "%X"})
		value := pick(r, []string{r.celDouble(depth - 1), r.celInt(depth - 1), r.celUint(depth - 1), r.celText(depth - 1)})
		return "'" + verb + "'.format([" + value + "])"
	case 3:
		return "(" + r.celText(depth-1) + " + " + r.celText(depth-1) + ")"
	case 4:
		return r.celText(depth-1) + pick(r, []string{".upperAscii()", ".lowerAscii()", ".trim()", ".replace('a', 'bb')", ".reverse()",
			fmt.Sprintf(".charAt(%d)", r.int64()), fmt.Sprintf(".substring(%d)", r.int64())})
	default:
		return "[" + r.celText(depth-1) + ", " + r.celText(depth-1) + "].join('-')"
	}
}

// celQuoted is a CEL literal of the text.
func celQuoted(text string) string { return quoted(text) }

// celDuration returns an expression of type duration.
func (r *random) celDuration(depth int) string {
	if depth <= 0 || r.chance(50) {
		return "duration(" + celQuoted(r.durationText()) + ")"
	}
	return pick(r, []string{"(" + r.celDuration(depth-1) + pick(r, []string{" + ", " - "}) + r.celDuration(depth-1) + ")",
		"(" + r.celTimestamp(depth-1) + " - " + r.celTimestamp(depth-1) + ")", "duration(string(" + r.celInt(depth-1) + ") + 's')"})
}

// celTimestamp returns an expression of type timestamp.
func (r *random) celTimestamp(depth int) string {
	if depth <= 0 || r.chance(50) {
		return "timestamp(" + celQuoted(r.timeText(pick(r, []int{0, 3, 9}))) + ")"
	}
	return pick(r, []string{"(" + r.celTimestamp(depth-1) + pick(r, []string{" + ", " - "}) + r.celDuration(depth-1) + ")",
		"timestamp(" + r.celInt(depth-1) + ")"})
}

// celQuantity returns an expression of type quantity.
func (r *random) celQuantity(depth int) string {
	if depth <= 0 || r.chance(50) {
		return pick(r, []string{"quantity(" + celQuoted(r.quantity()) + ")", "quantity(object.q)", "quantity('1.5Gi')"})
	}
	return r.celQuantity(depth-1) + pick(r, []string{".add(", ".sub("}) + pick(r, []string{r.celQuantity(depth - 1), r.celInt(depth - 1)}) + ")"
}

// celBool returns an expression of type bool.
func (r *random) celBool(depth int) string {
	operator := pick(r, []string{" == ", " != ", " < ", " <= ", " > ", " >= "})
	numbers := []string{r.celInt(depth - 1), r.celUint(depth - 1), r.celDouble(depth - 1), r.celDouble(depth - 1)}
	switch r.below(5) {
	case 0, 1:
		return pick(r, numbers) + operator + pick(r, numbers)
	case 2:
		return r.celText(depth-1) + operator + r.celText(depth-1)
	case 3:
		return pick(r, numbers) + " in [" + r.celInt(depth-1) + ", " + pick(r, numbers) + "]"
	default:
		return "[1, 2.5, 3u].exists(x, x" + operator + pick(r, numbers) + ")"
	}
}

func generateCEL(r *random) celInput {
	depth := r.between(1, 3)
	expression := pick(r, []func(int) string{r.celInt, r.celUint, r.celDouble, r.celText, r.celDuration, r.celTimestamp, r.celQuantity,
		r.celBool})(depth)
	return celInput{expression, r.celObject()}
}

// celClass is the outermost function or operator.
func celClass(input celInput) string {
	ast, issues := celEnv().Parse(input.Expression)
	if issues.Err() != nil {
		return "syntax error"
	}
	expression := ast.NativeRep().Expr()
	if call := expression.AsCall(); call.FunctionName() != "" {
		return "function " + call.FunctionName()
	}
	return "other"
}

// celRule is a rule of a custom resource, and the limits of the value that it is about.
type celRule struct {
	Rule string `json:"rule"`
	// Schema is the schema that the rule is in.
	Schema json.RawMessage `json:"schema"`
	// Object is JSON text of the value.
	Object json.RawMessage `json:"object"`
}

func generateCELRule(r *random) celRule {
	limit := pick(r, []int64{1, 10, 1000, 1 << 20, 1 << 31, 1 << 53, 1<<63 - 1, r.int64()})
	rule := pick(r, []string{"self.a.all(x, self.b.exists(y, x == y))", "self.a.all(x, x.size() < 5)", "self.s.contains(self.a[0])",
		"self.s.matches('a+b*')", "self.a == self.b", "self.a.map(x, x + self.s).size() > 0", "self.s + self.s == self.s",
		"self.m.all(k, self.m[k] == self.s)", "self.a.isSorted()", "self.a.sum() > " + fmt.Sprint(r.int64()), "self.a.indexOf(self.s) > 0",
		"self.n > " + r.number(), "double(self.n) * " + r.number() + " < self.n", "int(self.n) == " + r.celInt(1), "self.s.split('').size() > 1",
		"sets.contains(self.a, self.b)", "self.s.replace('a', 'bcd').size() > 1", "quantity(self.s).isLessThan(quantity('1'))"})
	schema := fmt.Sprintf(`{"type":"object","properties":{"a":{"type":"array","maxItems":%d,"items":{"type":"string","maxLength":%d}},`+
		`"b":{"type":"array","items":{"type":"string"}},"s":{"type":"string","maxLength":%d},"n":{"type":"number"},`+
		`"m":{"type":"object","maxProperties":%d,"additionalProperties":{"type":"string"}}}}`,
		limit, r.between(0, 1000), pick(r, []int64{limit, int64(r.below(1000))}), pick(r, []int64{limit, 3}))
	object := fmt.Sprintf(`{"a":["a",%s],"b":["a","b"],"s":%s,"n":%s,"m":{"k":%s}}`, quoted(r.text()), quoted(r.text()), r.number(),
		quoted(r.text()))
	return celRule{rule, json.RawMessage(schema), json.RawMessage(object)}
}

// compileRule returns the costs of the rule, as the validation of a CustomResourceDefinition computes them.
func compileRule(input celRule) (any, error) {
	schema, err := structuralSchema(input.Schema)
	if err != nil {
		return nil, errNotAnInput
	}
	schema.XValidations = apiextensionsv1.ValidationRules{{Rule: input.Rule}}
	declared := model.SchemaDeclType(schema, true)
	results, err := apiextensionscel.Compile(schema, declared, celconfig.PerCallLimit,
		environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()), apiextensionscel.NewExpressionsEnvLoader())
	if err != nil {
		return nil, err
	}
	answer := map[string]any{}
	for _, result := range results {
		answer["cost"], answer["cardinality"] = result.MaxCost, result.MaxCardinality
		if result.Error != nil {
			answer["error"] = result.Error.Detail
		} else {
			answer["result"] = runRule(result.Program, schema, input)
		}
	}
	return answer, nil
}

// runRule evaluates the rule for the object, as the validation of a custom resource does.
func runRule(program cel.Program, schema *structural.Structural, input celRule) string {
	object, err := decodeObject(input.Object)
	if err != nil {
		return err.Error()
	}
	self := common.UnstructuredToVal(object, &model.Structural{Structural: schema})
	value, details, err := program.Eval(map[string]any{"self": self})
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%s, cost %d", celText(value), *details.ActualCost())
}

func init() {
	define(definition[celInput]{
		name:     "cel.expression",
		about:    "an expression in the apiserver's CEL environment: value, actual cost, estimated cost",
		generate: generateCEL, class: celClass, evaluate: evaluateCEL,
	})
	define(definition[celRule]{
		name:     "cel.rule",
		about:    "a validation rule of a custom resource: estimated cost and cardinality, and the validation of an object",
		generate: generateCELRule, evaluate: compileRule,
		class: func(input celRule) string { return input.Rule },
	})
}
