// Subjects about single values: quantities, IntOrString, durations, times.
package main

import (
	"k8s.io/apimachinery/pkg/api/resource"
)

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
}
