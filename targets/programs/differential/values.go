// Subjects about single values: quantities, IntOrString, durations, times, backoff.
package main

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/wait"
)

// quantitySum is quantities that are added up, as quotas and schedulers do.
type quantitySum struct {
	Quantities []string `json:"quantities"`
	Factor     int64    `json:"factor"`
}

func generateQuantities(r *random) quantitySum {
	sum := quantitySum{Factor: r.int64()}
	for range r.between(2, 8) {
		sum.Quantities = append(sum.Quantities, r.quantity())
	}
	return sum
}

// quantityNumbers are the numbers that callers take out of a quantity.
func quantityNumbers(q resource.Quantity) map[string]any {
	integer, ok := q.AsInt64()
	return map[string]any{
		"text": q.String(), "value": q.Value(), "milli": q.MilliValue(), "sign": q.Sign(), "integer": integer, "fits": ok,
		"float": exact(q.AsApproximateFloat64()), "slow-float": exact(q.AsFloat64Slow()),
	}
}

func sumQuantities(input quantitySum) (any, error) {
	total, order := resource.Quantity{}, []int{}
	for _, text := range input.Quantities {
		q, err := resource.ParseQuantity(text)
		if err != nil {
			return nil, err
		}
		order = append(order, total.Cmp(q), q.CmpInt64(input.Factor))
		total.Add(q)
	}
	less := total.DeepCopy()
	if first, err := resource.ParseQuantity(input.Quantities[0]); err == nil {
		less.Sub(first)
		less.Neg()
	}
	product := total.DeepCopy()
	fits := product.Mul(input.Factor)
	rounded := total.DeepCopy()
	whole := rounded.RoundUp(resource.Mega)
	return map[string]any{
		"sum": quantityNumbers(total), "order": order, "less": less.String(), "product": quantityNumbers(product), "fits": fits,
		"rounded": rounded.String(), "whole": whole,
	}, nil
}

// decodeQuantity decodes a quantity from JSON text, where a number is permitted.
func decodeQuantity(text string) (any, error) {
	var q resource.Quantity
	if err := json.Unmarshal([]byte(text), &q); err != nil {
		return nil, err
	}
	cbor, err := q.MarshalCBOR()
	return map[string]any{"numbers": quantityNumbers(q), "cbor": hex.EncodeToString(cbor)}, err
}

// scaled is an IntOrString and the total that its percentage is of.
type scaled struct {
	// Value is JSON text.
	Value string `json:"value"`
	// Total is a number of replicas or of nodes in upstream's calls.
	Total   int32 `json:"total"`
	RoundUp bool  `json:"roundUp"`
}

func generateScaled(r *random) scaled {
	percent := fmt.Sprintf("%d%%", r.int64())
	if r.chance(50) {
		percent = fmt.Sprintf("%d%%", r.between(-10, 250))
	}
	value := pick(r, []string{quoted(percent), quoted(percent), quoted(percent), fmt.Sprint(r.int32()), r.number(), quoted(r.number()),
		quoted(r.text())})
	return scaled{value, max(0, r.int32()), r.chance(50)}
}

func scaleIntOrString(input scaled) (any, error) {
	if input.Total < 0 {
		return nil, errNotAnInput
	}
	var value intstr.IntOrString
	if err := json.Unmarshal([]byte(input.Value), &value); err != nil {
		return nil, err
	}
	result, err := intstr.GetScaledValueFromIntOrPercent(&value, int(input.Total), input.RoundUp)
	old, oldErr := intstr.GetValueFromIntOrPercent(&value, int(input.Total), input.RoundUp) //nolint:staticcheck // still in use
	return map[string]any{
		"text": value.String(), "int": value.IntValue(), "scaled": result, "error": fmt.Sprint(err), "old": old,
		"old-error": fmt.Sprint(oldErr), "parsed": intstr.Parse(value.String()),
	}, nil
}

// scaledClass is the form of the value.
func scaledClass(input scaled) string {
	switch {
	case !strings.HasPrefix(input.Value, `"`):
		return "number"
	case strings.HasSuffix(input.Value, `%"`):
		return "percentage"
	}
	return "text"
}

// durationJSON returns the JSON text of a duration, seldom a number.
func (r *random) durationJSON() string {
	if r.chance(10) {
		return r.number()
	}
	return quoted(r.durationText())
}

func decodeDuration(text string) (any, error) {
	var d metav1.Duration
	if err := json.Unmarshal([]byte(text), &d); err != nil {
		return nil, err
	}
	return map[string]any{
		"text": d.Duration.String(), "seconds": exact(d.Seconds()), "minutes": exact(d.Minutes()), "rounded": d.Round(time.Second),
		"truncated": d.Truncate(time.Minute), "human": duration.HumanDuration(d.Duration), "short": duration.ShortHumanDuration(d.Duration),
	}, nil
}

// timeJSON returns the JSON text of a time, seldom another value.
func (r *random) timeJSON() string {
	if r.chance(5) {
		return pick(r, []string{"null", `""`, r.number(), quoted(r.text())})
	}
	return quoted(r.timeText(pick(r, []int{0, 6})))
}

func decodeTime(text string) (any, error) {
	answer := map[string]any{}
	var seconds metav1.Time
	if err := json.Unmarshal([]byte(text), &seconds); err != nil {
		answer["time-error"] = err.Error()
	} else {
		protobuf, err := seconds.Marshal()
		answer["time"] = map[string]any{"json": seconds, "unix": seconds.Unix(), "nanos": seconds.UnixNano(),
			"protobuf": hex.EncodeToString(protobuf), "error": fmt.Sprint(err), "query": seconds.ToUnstructured()}
	}
	var micros metav1.MicroTime
	if err := json.Unmarshal([]byte(text), &micros); err != nil {
		answer["microtime-error"] = err.Error()
	} else {
		protobuf, err := micros.Marshal()
		answer["microtime"] = map[string]any{"json": micros, "micros": micros.UnixMicro(), "protobuf": hex.EncodeToString(protobuf),
			"error": fmt.Sprint(err)}
	}
	return answer, nil
}

// backoff are the parameters of wait.Backoff without jitter, which is random. Upstream's callers pass no negative ones.
type backoff struct {
	Duration int64 `json:"duration"`
	// Factor is the text of a float.
	Factor string `json:"factor"`
	Steps  int32  `json:"steps"`
	Cap    int64  `json:"cap"`
}

func generateBackoff(r *random) backoff {
	factor := pick(r, []string{"1.5", "2", "3.0", "1.1", "0.1", "5", fmt.Sprintf("%d.%d", r.below(10), r.below(1000))})
	return backoff{int64(r.uint64() >> (r.below(50) + 1)), factor, int32(r.between(0, 40)), pick(r, []int64{0, 0, int64(r.uint64() >> 1)})}
}

func backoffSteps(input backoff) (any, error) {
	factor, err := strconv.ParseFloat(input.Factor, 64)
	if err != nil || factor < 0 || input.Duration < 0 || input.Steps < 0 || input.Cap < 0 {
		return nil, errNotAnInput
	}
	b := wait.Backoff{Duration: time.Duration(input.Duration), Factor: factor, Steps: int(input.Steps), Cap: time.Duration(input.Cap)}
	steps := []int64{}
	for range 40 {
		steps = append(steps, int64(b.Step()))
	}
	return steps, nil
}

// backoffClass says whether a delay leaves the range of time.Duration before the cap is compared. The products are the
// same on each architecture: no sum follows that could be fused.
func backoffClass(input backoff) string {
	factor, err := strconv.ParseFloat(input.Factor, 64)
	if err != nil {
		return ""
	}
	delay := input.Duration
	for range min(input.Steps, 40) {
		next := float64(delay) * factor
		if next >= 1<<63 {
			return "delay beyond int64"
		}
		if delay = int64(next); input.Cap > 0 && delay > input.Cap {
			break
		}
	}
	return "ordinary delays"
}

// exactQuantity is the number that a text of a quantity means after parsing.
func exactQuantity(text string) (*big.Rat, bool) {
	q, err := resource.ParseQuantity(text)
	if err != nil {
		return nil, false
	}
	return ratOf(q), true
}

// ratOf returns the value of a quantity.
func ratOf(q resource.Quantity) *big.Rat {
	decimal := q.AsDec()
	power := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(max(decimal.Scale(), -decimal.Scale()))), nil)
	if decimal.Scale() < 0 {
		return new(big.Rat).SetInt(power.Mul(power, decimal.UnscaledBig()))
	}
	return new(big.Rat).SetFrac(decimal.UnscaledBig(), power)
}

// milliLimit is the largest number whose thousandths, which are rounded up, fit into int64.
var milliLimit = new(big.Rat).SetFrac64(math.MaxInt64, 1000)

// quantitySumClass says whether the thousandths of the sum or of the product fit into int64.
func quantitySumClass(input quantitySum) string {
	sum := new(big.Rat)
	for _, text := range input.Quantities {
		value, ok := exactQuantity(text)
		if !ok {
			return "not a quantity"
		}
		sum.Add(sum, value)
	}
	product := new(big.Rat).Mul(sum, new(big.Rat).SetInt64(input.Factor))
	if new(big.Rat).Abs(sum).Cmp(milliLimit) > 0 || product.Abs(product).Cmp(milliLimit) > 0 {
		return "thousandths beyond int64"
	}
	return "ordinary amounts"
}

func init() {
	define(definition[string]{
		name:     "value.quantity",
		about:    "resource.ParseQuantity and its canonical text, value, milli value, scaled values and float",
		generate: (*random).quantity,
		evaluate: func(text string) (any, error) {
			q, err := resource.ParseQuantity(text)
			if err != nil {
				return nil, err
			}
			milli, value := q.MilliValue(), q.Value()
			scaled := map[string]int64{}
			for name, scale := range map[string]resource.Scale{"n": resource.Nano, "k": resource.Kilo, "E": resource.Exa} {
				scaled[name] = q.ScaledValue(scale)
			}
			return map[string]any{
				"text": q.String(), "value": value, "milli": milli, "scaled": scaled,
				"float": exact(q.AsApproximateFloat64()), "sign": q.Sign(),
			}, nil
		},
	})
	define(definition[quantitySum]{
		name:     "value.quantity-sum",
		about:    "resource.Quantity: Add, Sub, Neg, Mul, Cmp, RoundUp and the numbers of the sum",
		generate: generateQuantities, class: quantitySumClass, evaluate: sumQuantities,
	})
	define(definition[string]{
		name:  "value.quantity-json",
		about: "resource.Quantity.UnmarshalJSON of numbers and texts",
		generate: func(r *random) string {
			return pick(r, []string{r.number(), r.number(), quoted(r.number()), quoted(r.quantity()), "null"})
		},
		class: numberClass, evaluate: decodeQuantity,
	})
	define(definition[scaled]{
		name:     "value.int-or-string",
		about:    "intstr.GetScaledValueFromIntOrPercent, GetValueFromIntOrPercent and Parse",
		generate: generateScaled, class: scaledClass, evaluate: scaleIntOrString,
	})
	define(definition[string]{
		name:     "value.duration",
		about:    "metav1.Duration.UnmarshalJSON, its float seconds, and the texts of k8s.io/apimachinery/pkg/util/duration",
		generate: (*random).durationJSON, evaluate: decodeDuration,
	})
	define(definition[string]{
		name:     "value.time",
		about:    "metav1.Time and metav1.MicroTime from JSON, and to JSON and protobuf",
		generate: (*random).timeJSON, evaluate: decodeTime,
	})
	define(definition[backoff]{
		name:     "value.backoff",
		about:    "wait.Backoff.Step without jitter",
		generate: generateBackoff, class: backoffClass, evaluate: backoffSteps,
	})
}
