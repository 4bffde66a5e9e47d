// Subjects: what can be evaluated, and how one case is generated, evaluated and digested.
package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
)

// definition is a subject with inputs of type I. I has a lossless JSON form: numbers in it are integers or strings.
type definition[I any] struct {
	// name is `area.subject`, as in `patch.strategic`.
	name string
	// about says in one sentence what is evaluated, with the package.
	about string
	// generate makes an input. It uses no floating-point arithmetic, so it makes the same input on each architecture.
	generate func(r *random) I
	// evaluate returns a value that encoding/json encodes; it is compared between architectures. An error is an answer
	// too. errNotAnInput says that the input is not one that generate could make: shrinking then goes another way.
	evaluate func(input I) (any, error)
	// class names the kind of an input, so that differences with one cause are in one group. Optional.
	class func(input I) string
}

var errNotAnInput = errors.New("not an input of this subject")

// subject is a definition without its type of inputs.
type subject struct {
	name, about string
	// generate returns the JSON form of a new input.
	generate func(r *random) []byte
	evaluate func(input []byte) outcome
}

// outcome is the result of one input.
type outcome struct {
	Answer json.RawMessage `json:"answer"`
	Class  string          `json:"class,omitempty"`
	// Invalid is true if the input is not one of the subject.
	Invalid bool `json:"invalid,omitempty"`
	// Violates is the oracle that the answer contradicts, if any.
	Violates *violation `json:"violates,omitempty"`
}

// result is a case of the operations `cases` and `evaluate`.
type result struct {
	Index uint64          `json:"index"`
	Input json.RawMessage `json:"input"`
	outcome
}

var subjects = map[string]*subject{}

// define registers a subject. It is called in the init functions of the files of subjects.
func define[I any](d definition[I]) {
	if subjects[d.name] != nil {
		panic("subject " + d.name + " is defined twice")
	}
	subjects[d.name] = &subject{
		name: d.name, about: d.about,
		generate: func(r *random) []byte { return mustEncode(d.generate(r)) },
		evaluate: func(raw []byte) outcome {
			var input I
			decoder := json.NewDecoder(bytes.NewReader(raw))
			decoder.DisallowUnknownFields()
			if decoder.Decode(&input) != nil {
				return outcome{Answer: json.RawMessage("null"), Invalid: true}
			}
			answer, err := guarded(d.evaluate, input)
			if errors.Is(err, errNotAnInput) {
				return outcome{Answer: json.RawMessage("null"), Invalid: true}
			}
			class := ""
			if d.class != nil {
				class = d.class(input)
			}
			text := mutated(d.name, encodeAnswer(answer, err))
			return outcome{Answer: text, Class: class, Violates: judge(d.name, raw, text)}
		},
	}
}

// guarded evaluates the input; a panic is an answer.
func guarded[I any](evaluate func(I) (any, error), input I) (answer any, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			answer, err = nil, fmt.Errorf("panic: %v", cause)
		}
	}()
	return evaluate(input)
}

func encodeAnswer(answer any, err error) []byte {
	if err != nil {
		return mustEncode(map[string]string{"error": err.Error()})
	}
	return mustEncode(answer)
}

func mustEncode(value any) []byte {
	var buffer bytes.Buffer
	encoder := json.NewEncoder(&buffer)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return mustEncode(map[string]string{"unencodable": err.Error()})
	}
	return bytes.TrimRight(buffer.Bytes(), "\n")
}

type description struct {
	Name  string `json:"name"`
	About string `json:"about"`
}

func describe() []description {
	all := []description{}
	for _, s := range subjects {
		all = append(all, description{s.name, s.about})
	}
	slices.SortFunc(all, func(a, b description) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// one generates and evaluates case number index of a seed.
func one(s *subject, seed, index uint64) result {
	input := s.generate(newRandom(seed, s.name, index))
	return result{Index: index, Input: input, outcome: s.evaluate(input)}
}

// digests returns the first 8 bytes of a SHA-256 for each batch of cases, over inputs and answers, and the first answer
// of each batch that violates an oracle, for each class of violations.
func digests(s *subject, r request) ([]string, []violatingCase) {
	count := (r.Count + r.Batch - 1) / r.Batch
	all, violating := make([]string, count), make([][]violatingCase, count)
	inParallel(count, func(batch uint64) {
		hash := sha256.New()
		end := min(r.From+(batch+1)*r.Batch, r.From+r.Count)
		for index := r.From + batch*r.Batch; index < end; index++ {
			c := one(s, r.Seed, index)
			hash.Write(c.Input)
			hash.Write([]byte{0})
			hash.Write(c.Answer)
			hash.Write([]byte{0})
			violating[batch] = withViolation(violating[batch], c)
		}
		all[batch] = hex.EncodeToString(hash.Sum(nil)[:8])
	})
	return all, slices.Concat(violating...)
}

func cases(s *subject, r request) []result {
	all := make([]result, r.Count)
	inParallel(r.Count, func(i uint64) { all[i] = one(s, r.Seed, r.From+i) })
	return all
}

func evaluateAll(s *subject, inputs []json.RawMessage) []result {
	all := make([]result, len(inputs))
	for i, input := range inputs {
		all[i] = result{Index: uint64(i), Input: input, outcome: s.evaluate(input)}
	}
	return all
}

// inParallel calls work for 0 to count-1 on all processors.
func inParallel(count uint64, work func(uint64)) {
	var group sync.WaitGroup
	next := make(chan uint64)
	for range min(uint64(runtime.GOMAXPROCS(0)), count) {
		group.Go(func() {
			for index := range next {
				work(index)
			}
		})
	}
	for index := range count {
		next <- index
	}
	close(next)
	group.Wait()
}
