// Subjects about tables: the columns that the apiserver prints for built-in objects.
package main

import (
	"encoding/json"
	"reflect"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/pkg/printers"
	printersinternal "k8s.io/kubernetes/pkg/printers/internalversion"
)

var tableGenerator = sync.OnceValue(func() *printers.HumanReadableGenerator {
	return printers.NewTableGenerator().With(printersinternal.AddHandlers)
})

// printTable returns the cells of a generated object. Columns show the time since then, so the object has no times.
func printTable(text json.RawMessage) (any, error) {
	_, internal, err := internalInput(text)
	if err != nil {
		return nil, err
	}
	clearTimes(reflect.ValueOf(internal))
	table, err := tableGenerator().GenerateTable(internal, printers.GenerateOptions{Wide: true})
	if err != nil {
		return nil, err
	}
	rows := []any{}
	for _, row := range table.Rows {
		rows = append(rows, row.Cells)
	}
	return rows, nil
}

// clearTimes sets every time in the value to zero.
func clearTimes(value reflect.Value) {
	switch value.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !value.IsNil() {
			clearTimes(value.Elem())
		}
	case reflect.Slice:
		for i := range value.Len() {
			clearTimes(value.Index(i))
		}
	case reflect.Struct:
		switch value.Interface().(type) {
		case metav1.Time, metav1.MicroTime:
			if value.CanSet() {
				value.SetZero()
			}
			return
		}
		for i := range value.NumField() {
			if value.Type().Field(i).IsExported() {
				clearTimes(value.Field(i))
			}
		}
	}
}

func init() {
	define(definition[json.RawMessage]{
		name:     "table.object",
		about:    "the table of a generated built-in object through printers.GenerateTable",
		generate: func(r *random) json.RawMessage { return r.object(pickBuiltin(r)) },
		class:    builtinKind, evaluate: printTable,
	})
}
