// Reference results of arithmetic: exact integers, or floats whose operations are not fused.
//
// The conversion of each product to float64 prevents that the compiler fuses it with a sum: see the Go specification,
// "Floating-point operators".
package main

import (
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
)

// ---- Flow control ----

// referenceAllocation returns the floats of apf.allocation: for the fair proportion p, each level gets p times its
// target, but not less than its lower and not more than its upper bound. It is false without such a p.
func referenceAllocation(in apfAllocationInput) ([]float64, bool) {
	levels, bends := []apfClass{}, []float64{0}
	low, high := 0.0, 0.0
	for _, level := range in.Levels {
		lower, upper := float64(level.Lower), float64(level.Upper)
		target := max(lower, float64(level.Target)/1e9, 0.001)
		if lower < 0 || upper < lower {
			return nil, false
		}
		levels = append(levels, apfClass{target, lower, upper})
		bends = append(bends, float64(lower/target), float64(upper/target))
		low, high = low+lower, high+upper
	}
	sum := float64(in.Sum)
	if sum < low || sum > high {
		return nil, false
	}
	slices.Sort(bends)
	// Between two bends the sum is linear.
	i := 0
	for i+2 < len(bends) && seatsAt(bends[i+1], levels) < sum {
		i++
	}
	proportion := bends[i]
	if i+1 < len(bends) {
		first, last := seatsAt(bends[i], levels), seatsAt(bends[i+1], levels)
		if last > first {
			proportion += float64((bends[i+1] - bends[i]) * ((sum - first) / (last - first)))
		}
	}
	limits := []float64{}
	for _, level := range levels {
		limits = append(limits, level.seats(proportion))
	}
	return limits, true
}

func (c apfClass) seats(proportion float64) float64 {
	return max(c.lower, min(c.upper, float64(proportion*c.target)))
}

// seatsAt is the sum of the seats of all levels.
func seatsAt(proportion float64, levels []apfClass) float64 {
	sum := 0.0
	for _, level := range levels {
		sum += level.seats(proportion)
	}
	return sum
}

// nextToHalf is true if an error of the last bits may round the number to another integer.
func nextToHalf(number float64) bool {
	return math.Abs(number-math.Floor(number)-0.5) < 1e-6
}

// wrongAllocation compares rounded limits; a limit next to a half may be rounded either way.
func wrongAllocation(in apfAllocationInput, answer []int64) (class, text string) {
	limits, ok := referenceAllocation(in)
	if !ok || len(limits) != len(answer) {
		return "", ""
	}
	for i, limit := range limits {
		if !nextToHalf(limit) && float64(answer[i]) != math.Round(limit) {
			return "seats", fmt.Sprintf("level %d gets %d seats, not %v", i, answer[i], limit)
		}
	}
	return "", ""
}

// wrongDemand compares duration, average and deviation of apf.demand in every bit.
func wrongDemand(steps []apfStep, answer []any) (class, text string) {
	if apfDemandClass(steps) != "ordinary seats" || len(answer) < 3 {
		return "", ""
	}
	duration, sum, squares, seats := 0.0, 0.0, 0.0, 0.0
	for i, step := range steps {
		seconds := time.Duration(step.Pause).Seconds()
		duration, sum = duration+seconds, sum+float64(seats*seconds)
		squares += float64(float64(seats*seats) * seconds)
		seats = float64(step.Seats)
		if i%3 == 2 {
			duration, sum, squares = 0, 0, 0
		}
	}
	if duration <= 0 {
		return "", ""
	}
	average := sum / duration
	deviation := math.Sqrt(squares/duration - float64(average*average))
	for i, number := range []float64{duration, average, deviation} {
		if name := []string{"duration", "average", "deviation"}[i]; answer[i] != exact(number) {
			return name, fmt.Sprintf("the %s is %v; without fused operations it is %s", name, answer[i], exact(number))
		}
	}
	return "", ""
}

// ---- Scheduler ----

// referenceBalance is half of 1 minus the deviation of the used fractions, in percent.
func referenceBalance(used, allocatable []int64) int64 {
	fractions, total := []float64{}, 0.0
	for i := range used {
		if allocatable[i] != 0 {
			fraction := min(1, float64(used[i])/float64(allocatable[i]))
			fractions, total = append(fractions, fraction), total+fraction
		}
	}
	deviation, mean := 0.0, total/float64(len(fractions))
	switch {
	case len(fractions) == 2:
		deviation = math.Abs(fractions[0]-fractions[1]) / 2
	case len(fractions) > 2:
		for _, fraction := range fractions {
			deviation += float64((fraction - mean) * (fraction - mean))
		}
		deviation = math.Sqrt(deviation / float64(len(fractions)))
	}
	return int64(float64(1-deviation) * 100)
}

func wrongBalance(in nodeResourcesInput, answer map[string]int64) (class, text string) {
	before, after, allocatable := []int64{}, []int64{}, []int64{}
	for _, resource := range in.Resources {
		before = append(before, resource.Allocated)
		after = append(after, resource.Allocated+resource.Request)
		allocatable = append(allocatable, resource.Allocatable)
	}
	score := 50 + (50+referenceBalance(after, allocatable)-referenceBalance(before, allocatable))/2
	if answer["balanced"] != score {
		return "balanced", fmt.Sprintf("the balanced score is %d; without fused operations it is %d", answer["balanced"], score)
	}
	return "", ""
}

// ---- Quotients ----

// ceiling is the smallest integer that is not below the number.
func ceiling(number *big.Rat) *big.Int {
	quotient, rest := new(big.Int).DivMod(number.Num(), number.Denom(), new(big.Int))
	if rest.Sign() > 0 {
		quotient.Add(quotient, big.NewInt(1))
	}
	return quotient
}

// wrongQuotient compares a value of the downward API with an exact division of the integers that kubelet divides.
func wrongQuotient(in fieldInput, answer string) (class, text string) {
	value, err := resource.ParseQuantity(in.Value)
	divisor, divisorErr := resource.ParseQuantity(in.Divisor)
	if err != nil || divisorErr != nil {
		return "", ""
	}
	if divisor.IsZero() {
		divisor = resource.MustParse("1")
	}
	units := ratOf(value)
	per := ratOf(divisor)
	if in.Resource == "cpu" {
		thousand := big.NewRat(1000, 1)
		units, per = units.Mul(units, thousand), per.Mul(per, thousand)
	}
	amount, size := ceiling(units), ceiling(per)
	if !amount.IsInt64() {
		return "", ""
	}
	expected := ceiling(new(big.Rat).SetFrac(amount, size)).String()
	if answer == expected {
		return "", ""
	}
	class = "ordinary amount"
	if amount.Int64() > 1<<53 {
		class = "amount beyond 2^53"
	}
	return class, fmt.Sprintf("%s divided by %s is %s, not %s", in.Value, in.Divisor, expected, answer)
}

// wrongPercentage compares a scaled percentage with an exact one.
func wrongPercentage(in scaled, answer struct {
	Scaled json.Number `json:"scaled"`
	Error  string      `json:"error"`
}) (class, text string) {
	percent, ok := new(big.Rat).SetString(strings.TrimSuffix(strings.Trim(in.Value, `"`), "%"))
	if scaledClass(in) != "percentage" || answer.Error != "<nil>" || !ok || !percent.IsInt() {
		return "", ""
	}
	number := percent.Mul(percent, big.NewRat(int64(in.Total), 100))
	expected := new(big.Int).Div(number.Num(), number.Denom())
	if in.RoundUp {
		expected = ceiling(number)
	}
	if expected.String() == string(answer.Scaled) {
		return "", ""
	}
	class = "ordinary percentage"
	if abs := new(big.Int).Abs(expected); abs.Cmp(big.NewInt(1<<46)) > 0 {
		class = "result beyond 2^46"
	}
	return class, fmt.Sprintf("%s of %d is %s, not %s", in.Value, in.Total, expected, answer.Scaled)
}

func init() {
	require("apf.allocation", "reference", wrongAllocation)
	require("apf.demand", "reference", wrongDemand)
	require("scheduler.resources", "reference", wrongBalance)
	require("kubelet.downward-api", "reference", wrongQuotient)
	require("value.int-or-string", "reference", wrongPercentage)
}
