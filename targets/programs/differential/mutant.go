// Mutants: defects of one side that `cargo xtask differential --selftest` must find.
//
// A mutant replaces the answer of one subject as a defect of an architecture would, for rare inputs only.
package main

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
)

type mutant struct {
	name, about, subject string
	// change returns the answer of the defective program.
	change func(answer []byte) []byte
}

var mutants = []mutant{}

// active is the mutant in effect, or nil.
var active atomic.Pointer[mutant]

func mutate(name string) error {
	i := slices.IndexFunc(mutants, func(m mutant) bool { return m.name == name })
	if i < 0 {
		return fmt.Errorf("no mutant %q", name)
	}
	if subjects[mutants[i].subject] == nil {
		return fmt.Errorf("mutant %s changes subject %s, which does not exist", name, mutants[i].subject)
	}
	active.Store(&mutants[i])
	return nil
}

func mutated(subject string, answer []byte) []byte {
	if m := active.Load(); m != nil && m.subject == subject {
		return m.change(answer)
	}
	return answer
}

type mutantDescription struct {
	Name    string `json:"name"`
	About   string `json:"about"`
	Subject string `json:"subject"`
}

func describeMutants() []mutantDescription {
	all := []mutantDescription{}
	for _, m := range mutants {
		all = append(all, mutantDescription{m.name, m.about, m.subject})
	}
	return all
}

var _ = []any{bytes.Equal, regexp.MustCompile, strconv.Itoa, strings.Contains}
