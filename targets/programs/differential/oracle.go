// Oracles: what an answer must fulfil on every architecture, so that a run of one architecture finds a defect.
package main

import (
	"encoding/json"
	"fmt"
	"math/big"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// violation says which oracle an answer contradicts.
type violation struct {
	// Oracle is `limits`, `extreme-integer`, `sum` or `reference`.
	Oracle string `json:"oracle"`
	// Class names the kind of the violation, so that violations with one cause are in one group.
	Class string `json:"class"`
	Text  string `json:"text"`
}

// violatingCase is a case of the operation `digests` whose answer violates an oracle.
type violatingCase struct {
	Index uint64 `json:"index"`
	violation
}

// oracles are the oracles of each subject. An oracle returns nil if the answer is right or if it cannot judge it.
var oracles = map[string][]func(input, answer []byte) *violation{}

// require adds an oracle to a subject: it returns the class and the text of a violation, or an empty text.
func require[I, A any](subject, oracle string, violated func(input I, answer A) (class, text string)) {
	oracles[subject] = append(oracles[subject], func(rawInput, rawAnswer []byte) *violation {
		var input I
		var answer A
		if json.Unmarshal(rawInput, &input) != nil || json.Unmarshal(rawAnswer, &answer) != nil {
			return nil
		}
		if class, text := violated(input, answer); text != "" {
			return &violation{oracle, class, text}
		}
		return nil
	})
}

var errorAnswer = regexp.MustCompile(`^\{"error":"(?:[^"\\]|\\.)*"\}$`)

// judge returns the first violation of the subject's oracles. Errors are not judged: they contain no result.
func judge(subject string, input, answer []byte) *violation {
	if errorAnswer.Match(answer) {
		return nil
	}
	for _, oracle := range oracles[subject] {
		if v := oracle(input, answer); v != nil {
			return v
		}
	}
	return nil
}

// withViolation adds a violating case, unless one of the same oracle and class is there.
func withViolation(all []violatingCase, c result) []violatingCase {
	if c.Violates == nil || slices.ContainsFunc(all, func(other violatingCase) bool {
		return other.Oracle == c.Violates.Oracle && other.Class == c.Violates.Class
	}) {
		return all
	}
	return append(all, violatingCase{c.Index, *c.Violates})
}

// ---- Extreme integers ----

// extremeSubjects have answers with numbers of the input.
var extremeSubjects = []string{"object.from-unstructured", "patch.strategic", "patch.apply", "patch.merge", "patch.json",
	"validation.create", "custom.column"}

// extremes matches the smallest and largest integers that are numbers of a JSON text.
var extremes = regexp.MustCompile(
	`(?:^|[:\[,])(-9223372036854775808|9223372036854775807|-2147483648|2147483647)(?:$|[,\]}])`)

// extremeTexts also matches texts of numbers and quantities. Upstream reduces a large quantity to the largest int64.
var extremeTexts = regexp.MustCompile(`[:\[,"](-9223372036854775808|-2147483648)m?[,\]}"]`)

// extremeDefaults matches fields whose default is the largest int32, in old versions or next to a limit per index.
var extremeDefaults = regexp.MustCompile(`"(progressDeadlineSeconds|revisionHistoryLimit|backoffLimit)":2147483647`)

// inputNumbers matches the numbers and quantities of an input.
var inputNumbers = regexp.MustCompile(`[-+]?[0-9.]+(?:[eE][-+]?[0-9]+|[numkKMGTPE]i?)?`)

// unsentNumber returns an extreme number of the answer that is not in the input.
func unsentNumber(input, answer json.RawMessage) (class, text string) {
	return unsentExtreme(extremes, input, extremeDefaults.ReplaceAll(answer, nil))
}

// unsentNegative returns an extreme negative number, or the text of one, that a computation made.
func unsentNegative(input, answer json.RawMessage) (class, text string) {
	return unsentExtreme(extremeTexts, input, answer)
}

func unsentExtreme(pattern *regexp.Regexp, input, answer []byte) (class, text string) {
	for _, match := range pattern.FindAllSubmatch(answer, -1) {
		number, err := strconv.ParseInt(string(match[1]), 10, 64)
		if err != nil || isSent(input, number) {
			continue
		}
		width := "int64"
		if int64(int32(number)) == number {
			width = "int32"
		}
		return width, fmt.Sprintf("the answer contains %d, which is not in the input", number)
	}
	return "", ""
}

// isSent is true if a number of the input, without its fraction, is the integer, or thousandths of it are.
func isSent(input []byte, number int64) bool {
	for _, text := range inputNumbers.FindAllString(string(input), -1) {
		value, ok := printedQuantity(text)
		if !ok {
			continue
		}
		for range 2 {
			if whole := new(big.Int).Quo(value.Num(), value.Denom()); whole.IsInt64() && whole.Int64() == number {
				return true
			}
			value.Mul(value, big.NewRat(1000, 1))
		}
	}
	return false
}

// ---- Limits of custom resources ----

// limitedField is the schema of a number; a JSON number keeps its text.
type limitedField struct {
	Type             string       `json:"type"`
	Minimum          *json.Number `json:"minimum"`
	Maximum          *json.Number `json:"maximum"`
	MultipleOf       *json.Number `json:"multipleOf"`
	ExclusiveMinimum bool         `json:"exclusiveMinimum"`
	ExclusiveMaximum bool         `json:"exclusiveMaximum"`
}

type limitedObject struct {
	Schema struct {
		Properties map[string]limitedField `json:"properties"`
	} `json:"schema"`
	Object map[string]json.RawMessage `json:"object"`
}

type limitedAnswer struct {
	Errors []string `json:"errors"`
}

// wrongVerdict compares the verdict about each number of a custom resource with the limits of its schema.
func wrongVerdict(input limitedObject, answer limitedAnswer) (class, text string) {
	for name, field := range input.Schema.Properties {
		value, err := strconv.ParseFloat(string(input.Object[name]), 64)
		number, ok := new(big.Rat).SetString(string(input.Object[name]))
		// A number beyond int64 is a float: its decimal digits are not what is compared.
		if err != nil || !ok || value >= 1<<53 || value <= -(1<<53) || field.Type == "integer" && !number.IsInt() {
			continue
		}
		if class, text := field.wrongVerdict(number, new(big.Rat).SetFloat64(value), errorsOf(name, answer.Errors)); text != "" {
			return class, fmt.Sprintf("field %s with %s %s", name, input.Object[name], text)
		}
	}
	return "", ""
}

// errorsOf joins the errors of a field. A CEL rule or an enum does not change the verdict about limits.
func errorsOf(name string, errors []string) string {
	all := []string{}
	for _, text := range errors {
		if strings.HasPrefix(text, name+": ") {
			all = append(all, text)
		}
	}
	return strings.Join(all, "\n")
}

// wrongVerdict compares the errors of one number with its limits. stored is the float that the apiserver compares.
func (f limitedField) wrongVerdict(number, stored *big.Rat, errors string) (class, text string) {
	for _, limit := range []struct {
		name, message string
		bound         *json.Number
		sign          int
		exclusive     bool
	}{
		{"maximum", "should be less than", f.Maximum, 1, f.ExclusiveMaximum},
		{"minimum", "should be greater than", f.Minimum, -1, f.ExclusiveMinimum},
	} {
		if limit.bound == nil {
			continue
		}
		bound, ok := boundOf(*limit.bound)
		if !ok {
			continue
		}
		order := stored.Cmp(bound) * limit.sign
		violates := order > 0 || order == 0 && limit.exclusive
		switch refused := strings.Contains(errors, limit.message); {
		case violates && errors == "":
			return limitClass(bound), fmt.Sprintf("is accepted, but violates %s %s", limit.name, *limit.bound)
		case !violates && refused:
			return limitClass(bound), fmt.Sprintf("satisfies %s %s, but is refused", limit.name, *limit.bound)
		}
	}
	return f.wrongMultiple(number, errors)
}

// wrongMultiple judges multiples as decimal numbers. A float that is no multiple may be accepted: validation has a
// tolerance for floats.
func (f limitedField) wrongMultiple(number *big.Rat, errors string) (class, text string) {
	if f.MultipleOf == nil {
		return "", ""
	}
	factor, ok := new(big.Rat).SetString(string(*f.MultipleOf))
	if bound, finite := boundOf(*f.MultipleOf); !ok || !finite || factor.Sign() <= 0 || bound.Sign() <= 0 {
		return "", ""
	}
	quotient := new(big.Rat).Quo(number, factor)
	if new(big.Rat).Abs(quotient).Cmp(big.NewRat(1<<53, 1)) >= 0 {
		return "", ""
	}
	isMultiple := quotient.IsInt()
	refused := strings.Contains(errors, "multiple of") || strings.Contains(errors, "MultipleOf")
	switch class := multipleClass(number, factor); {
	case !isMultiple && errors == "" && number.IsInt() && factor.IsInt():
		return class, fmt.Sprintf("is accepted, but violates multipleOf %s", *f.MultipleOf)
	case isMultiple && refused:
		return class, fmt.Sprintf("satisfies multipleOf %s, but is refused", *f.MultipleOf)
	}
	return "", ""
}

// multipleClass is the class of the factor, unless both numbers are ordinary.
func multipleClass(number, factor *big.Rat) string {
	switch {
	case factor.IsInt() && number.IsInt():
		return "multiple, " + limitClass(factor)
	case number.IsInt():
		return "integer of a multiple with fraction"
	case number.Sign() < 0:
		return "negative fraction"
	}
	return "positive fraction"
}

// boundOf returns a limit as the schema stores it: as a float.
func boundOf(text json.Number) (*big.Rat, bool) {
	float, err := strconv.ParseFloat(string(text), 64)
	if err != nil {
		return nil, false
	}
	return new(big.Rat).SetFloat64(float), true
}

var int64Limit = new(big.Rat).SetInt(new(big.Int).Lsh(big.NewInt(1), 63))

func limitClass(bound *big.Rat) string {
	switch {
	case new(big.Rat).Abs(bound).Cmp(int64Limit) >= 0:
		return "limit beyond int64"
	case !bound.IsInt():
		return "limit with fraction"
	}
	return "integer limit"
}

// ---- Sums ----

// summedAnswer has the members of value.quantity-sum that a sum must fulfil.
type summedAnswer struct {
	Sum struct {
		Value int64 `json:"value"`
		Milli int64 `json:"milli"`
		Sign  int   `json:"sign"`
	} `json:"sum"`
}

// smallerSum compares the numbers of a sum of quantities, none of which is negative, with its parts.
func smallerSum(input quantitySum, answer summedAnswer) (class, text string) {
	for _, part := range input.Quantities {
		if value, ok := exactQuantity(part); !ok || value.Sign() < 0 {
			return "", ""
		}
	}
	class = quantitySumClass(quantitySum{Quantities: input.Quantities})
	for _, part := range input.Quantities {
		value, _ := exactQuantity(part)
		switch {
		case value.Sign() > 0 && answer.Sum.Sign < 1:
			return class, fmt.Sprintf("the sign of the sum is %d, that of the part %s is 1", answer.Sum.Sign, part)
		case value.Cmp(int64Limit) < 0 && new(big.Rat).SetInt64(answer.Sum.Value).Cmp(value) < 0:
			return class, fmt.Sprintf("the value of the sum, %d, is smaller than the part %s", answer.Sum.Value, part)
		case value.Cmp(milliLimit) <= 0 &&
			new(big.Rat).SetFrac64(answer.Sum.Milli, 1000).Cmp(value) < 0:
			return class, fmt.Sprintf("the milli value of the sum, %d, is smaller than the part %s", answer.Sum.Milli, part)
		}
	}
	return "", ""
}

// smallerTotal compares the text of the sum in resource.sum, after one comparison for each part, with the parts.
func smallerTotal(parts []string, answer []any) (class, text string) {
	if len(answer) <= len(parts) {
		return "", ""
	}
	total, ok := answer[len(parts)].(string)
	sum, parsed := printedQuantity(total)
	if !ok || !parsed {
		return "", ""
	}
	for _, part := range parts {
		if value, ok := exactQuantity(part); !ok || value.Sign() < 0 {
			return "", ""
		}
	}
	for _, part := range parts {
		if value, _ := exactQuantity(part); sum.Cmp(value) < 0 {
			return "text", fmt.Sprintf("the sum %s is smaller than the part %s", total, part)
		}
	}
	return "", ""
}

// binaryUnits are the powers of 1024 of the suffixes.
var binaryUnits = []string{"", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"}

// printedQuantity is the number that the text of a quantity shows. ParseQuantity would reduce a binary quantity beyond
// int64 to the largest int64.
func printedQuantity(text string) (*big.Rat, bool) {
	if number, found := strings.CutSuffix(text, "i"); found && number != "" {
		power := slices.Index(binaryUnits, text[len(number)-1:])
		value, ok := new(big.Rat).SetString(number[:len(number)-1])
		if !ok || power < 0 {
			return nil, false
		}
		unit := new(big.Int).Lsh(big.NewInt(1), uint(10*power))
		return value.Mul(value, new(big.Rat).SetInt(unit)), true
	}
	return exactQuantity(text)
}

func init() {
	for _, subject := range extremeSubjects {
		require(subject, "extreme-integer", unsentNumber)
	}
	for _, subject := range []string{"hpa.replicas", "kubelet.downward-api", "kubelet.eviction"} {
		require(subject, "extreme-integer", unsentNegative)
	}
	require("custom.object", "limits", wrongVerdict)
	require("value.quantity-sum", "sum", smallerSum)
	require("resource.sum", "sum", smallerTotal)
}
