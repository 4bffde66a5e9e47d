// Mutants: defects of one side that `cargo xtask differential --selftest` must find.
//
// A mutant replaces the answer of one subject as a defect of an architecture would, for rare inputs only.
package main

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"sync/atomic"

	"golang.org/x/text/unicode/norm"
)

type mutant struct {
	name, about, subject string
	// change returns the answer of the defective program.
	change func(answer []byte) []byte
}

var mutants = []mutant{
	{"number-rounded", "integers beyond 2^53 are rounded to the next float", "value.quantity", roundNumbers},
	{"integer-saturated", "integers from 2^62 on become the largest integer", "etcd.keys", saturateIntegers},
	{"conversion-saturated", "a float beyond int32 becomes the largest integer instead of the smallest",
		"hpa.replicas", saturateReplicas},
	{"list-reordered", "ports with equal numbers swap their places", "endpoints.subsets", reorderPorts},
	{"duplicate-dropped", "the second of two addresses with the same IP is dropped", "endpoints.subsets",
		dropDuplicates},
	{"unicode-normalised", "decomposed letters become composed ones", "hash.controller-revision", norm.NFC.Bytes},
	{"micro-time-truncated", "times lose their microseconds", "value.time", truncateTimes},
	{"name-changed", "one of about 700 hashes of pod templates has another last letter", "hash.pod-template",
		changeName},
	{"byte-order", "the key of a revision beyond 2^62 is written in little-endian order", "etcd.keys", swapKey},
	{"last-bit", "fractions with an even exponent lose their last bit, as without a fused multiplication and addition", "client.limiter", clearLastBit},
	{"limit-ignored", "numbers above a maximum are accepted: the errors of limits are missing", "custom.object", dropLimits},
	{"number-extreme", "the largest int32 replaces the numbers 4 to 9 in an object", "patch.merge", replaceDigits},
	{"sum-cut", "a sum loses its leading digit", "resource.sum", cutSum},
	{"quotient-down", "a quotient of three digits is one too small", "kubelet.downward-api", lowerQuotient},
	{"score-replaced", "a node score of 99 becomes 98", "scheduler.resources", lowerScore},
}

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

// ---- Numbers ----

var longIntegers = regexp.MustCompile(`[:\[,]-?\d{16,19}\b`)

// changeIntegers replaces the integers of a JSON text that have more than 15 digits.
func changeIntegers(answer []byte, change func(int64) int64) []byte {
	return longIntegers.ReplaceAllFunc(answer, func(match []byte) []byte {
		number, err := strconv.ParseInt(string(match[1:]), 10, 64)
		if err != nil {
			return match
		}
		return strconv.AppendInt(match[:1:1], change(number), 10)
	})
}

func roundNumbers(answer []byte) []byte {
	return changeIntegers(answer, func(number int64) int64 {
		// The largest integers would become 2^63.
		if rounded := float64(number); math.Abs(rounded) < math.MaxInt64 {
			return int64(rounded)
		}
		return number
	})
}

// saturateIntegers changes the revisions that keys contain: `{main sub}` in a text.
func saturateIntegers(answer []byte) []byte {
	return revisions.ReplaceAllFunc(answer, func(match []byte) []byte {
		number, err := strconv.ParseInt(string(match[1:]), 10, 64)
		if err != nil || number < 1<<62 {
			return match
		}
		return append(match[:1:1], "9223372036854775807"...)
	})
}

var revisions = regexp.MustCompile(`\{\d+`)

func saturateReplicas(answer []byte) []byte {
	return bytes.Replace(answer, []byte(`"replicas":-2147483648`), []byte(`"replicas":2147483647`), 1)
}

var fractions = regexp.MustCompile(`0x1\.([0-9a-f]{13})p[+-]\d*[02468]\b`)

func clearLastBit(answer []byte) []byte {
	return fractions.ReplaceAllFunc(answer, func(match []byte) []byte {
		bits, err := strconv.ParseFloat(string(match), 64)
		if err != nil {
			return match
		}
		return []byte(exact(math.Float64frombits(math.Float64bits(bits) &^ 1)))
	})
}

func lowerScore(answer []byte) []byte {
	return bytes.Replace(answer, []byte(":99,"), []byte(":98,"), 1)
}

// ---- Lists ----

// subset has the fields of an endpoint subset that mutants look at.
type subset struct {
	Addresses         []map[string]any `json:"addresses,omitempty"`
	NotReadyAddresses []map[string]any `json:"notReadyAddresses,omitempty"`
	Ports             []map[string]any `json:"ports,omitempty"`
}

// changeSubsets applies the change to each endpoint subset of the answer; an unchanged answer keeps its bytes.
func changeSubsets(answer []byte, change func(*subset) bool) []byte {
	var subsets []subset
	if json.Unmarshal(answer, &subsets) != nil {
		return answer
	}
	changed := false
	for i := range subsets {
		changed = change(&subsets[i]) || changed
	}
	if !changed {
		return answer
	}
	return mustEncode(subsets)
}

func reorderPorts(answer []byte) []byte {
	return changeSubsets(answer, func(s *subset) bool {
		for i := range len(s.Ports) - 1 {
			if s.Ports[i]["port"] == s.Ports[i+1]["port"] {
				s.Ports[i], s.Ports[i+1] = s.Ports[i+1], s.Ports[i]
				return true
			}
		}
		return false
	})
}

func dropDuplicates(answer []byte) []byte {
	return changeSubsets(answer, func(s *subset) bool {
		before, seen := len(s.Addresses), map[any]bool{}
		s.Addresses = slices.DeleteFunc(s.Addresses, func(address map[string]any) bool {
			duplicate := seen[address["ip"]]
			seen[address["ip"]] = true
			return duplicate
		})
		return len(s.Addresses) < before
	})
}

// ---- Texts ----

var microTimes = regexp.MustCompile(`(\d\d:\d\d:\d\d\.\d{3})\d{3}Z`)

func truncateTimes(answer []byte) []byte { return microTimes.ReplaceAll(answer, []byte("${1}000Z")) }

var changedHashes = regexp.MustCompile(`^("f.*)9"$`)

func changeName(answer []byte) []byte { return changedHashes.ReplaceAll(answer, []byte(`${1}8"`)) }

var revisionKeys = regexp.MustCompile(`^\["([4-7][0-9a-f]{15})5f`)

func swapKey(answer []byte) []byte {
	return revisionKeys.ReplaceAllFunc(answer, func(match []byte) []byte {
		key, err := hex.DecodeString(string(match[2:18]))
		if err != nil {
			return match
		}
		slices.Reverse(key)
		return append(append([]byte(`["`), hex.EncodeToString(key)...), "5f"...)
	})
}

// ---- Answers that violate an oracle ----

var limitErrors = regexp.MustCompile(`"[^"]*should be less than[^"]*",?`)

func dropLimits(answer []byte) []byte {
	return bytes.Replace(limitErrors.ReplaceAll(answer, nil), []byte(`,]`), []byte(`]`), 1)
}

var digits = regexp.MustCompile(`:[4-9]([,}])`)

func replaceDigits(answer []byte) []byte {
	return digits.ReplaceAll(answer, []byte(":2147483647$1"))
}

var longSums = regexp.MustCompile(`"\d(\d{6,})`)

func cutSum(answer []byte) []byte { return longSums.ReplaceAll(answer, []byte(`"$1`)) }

var shortQuotients = regexp.MustCompile(`^"(\d\d\d)"$`)

func lowerQuotient(answer []byte) []byte {
	return shortQuotients.ReplaceAllFunc(answer, func(match []byte) []byte {
		number, err := strconv.Atoi(string(match[1:4]))
		if err != nil {
			return match
		}
		return []byte(quoted(strconv.Itoa(number - 1)))
	})
}
