// Random choices that depend on the seed alone, and the boundary values of numbers, quantities and texts.
package main

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strconv"
	"strings"
)

// random makes choices with integer arithmetic only: floating-point results may differ between architectures.
type random struct{ source *rand.PCG }

func newRandom(seed uint64, subject string, index uint64) *random {
	name := fnv.New64a()
	name.Write([]byte(subject))
	r := &random{rand.NewPCG(seed^name.Sum64(), index)}
	// PCG's first outputs of neighbouring states are similar.
	r.source.Uint64()
	r.source.Uint64()
	return r
}

func (r *random) uint64() uint64 { return r.source.Uint64() }

// below returns a number from 0 to n-1.
func (r *random) below(n int) int { return int(r.source.Uint64() % uint64(n)) }

// between returns a number from low to high, both included.
func (r *random) between(low, high int) int { return low + r.below(high-low+1) }

// chance is true in percent of 100 calls.
func (r *random) chance(percent int) bool { return r.below(100) < percent }

func pick[T any](r *random, values []T) T { return values[r.below(len(values))] }

// powers are the integers around which programs change their behaviour.
var powers = []int64{0, 1, -1, 10, 100, 127, 128, 255, 256, 32767, 32768, 65535, 65536, 1 << 31, -(1 << 31), 1 << 32,
	1 << 52, 1 << 53, -(1 << 53), 1 << 62, 1<<63 - 1, -(1 << 63), 1_000_000_007}

// int64 returns a boundary value, a value next to one, a small value or any value.
func (r *random) int64() int64 {
	switch r.below(10) {
	case 0, 1, 2:
		return pick(r, powers)
	case 3, 4:
		return pick(r, powers) + int64(r.between(-2, 2))
	case 5, 6:
		return int64(r.between(-10, 1000))
	case 7:
		return int64(r.uint64()) >> r.below(64)
	default:
		return int64(r.uint64())
	}
}

func (r *random) int32() int32 {
	if r.chance(70) {
		return int32(r.between(-3, 200))
	}
	return int32(r.int64())
}

// number returns a JSON number in any spelling, as text: integers, fractions, exponents, beyond every type.
func (r *random) number() string {
	switch r.below(9) {
	case 0, 1:
		return fmt.Sprint(r.int64())
	case 2:
		return fmt.Sprintf("%d.0", r.int64())
	case 3:
		return fmt.Sprintf("%de%d", r.between(-9, 9), r.between(0, 40))
	case 4:
		return fmt.Sprintf("%d.%d", r.between(-1000, 1000), r.below(1000))
	case 5:
		return fmt.Sprintf("%d.%de%d", r.between(-9, 9), r.below(1_000_000), r.between(-40, 320))
	case 6:
		return pick(r, []string{"-0", "-0.0", "0.0", "1e0", "1E5", "1e+2", "9223372036854775807.0", "9223372036854775808",
			"18446744073709551615", "18446744073709551616", "1e19", "1e20", "1e30", "-1e30", "1e300", "-1e300", "1e308",
			"5e-324", "4294967297.0", "1e10", "2147483647.5", "0.1", "0.3", "3.5", "9007199254740993", "-9223372036854775809"})
	case 7:
		return fmt.Sprint(r.uint64())
	default:
		return fmt.Sprintf("%d%0*d", r.between(1, 9), r.between(1, 30), r.below(10))
	}
}

// quantity returns the text of a resource quantity, valid or nearly.
func (r *random) quantity() string {
	suffix := pick(r, []string{"", "", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "n", "u",
		"e3", "E3", "e-3", "e18", "e-9", "e40"})
	switch r.below(6) {
	case 0, 1:
		return fmt.Sprintf("%d%s", r.int64(), suffix)
	case 2:
		return fmt.Sprintf("%d.%d%s", r.between(-1000, 1000), r.below(1_000_000), suffix)
	case 3:
		return fmt.Sprintf("%d%s", r.between(0, 5000), suffix)
	case 4:
		return fmt.Sprintf("%d.%0*d%s", r.between(0, 9), r.between(1, 25), r.below(10), suffix)
	default:
		return pick(r, []string{"", "+1", "-0", ".5", "5.", "1.", "0", "0.0000000001", "9223372036854775807",
			"9223372036854775808", "9223372036854775807m", "1e19", "8Ei", "7999P", "1E", "-8Ei", "9.3E", "1Ki5", "١"})
	}
}

var letters = []string{"a", "b", "z", "A", "0", "9", "-", ".", "_", "/", " ", "é", "e\u0301", "ß", "İ", "ſ", "\u212a", "中", "\U0001F600",
	"\u200d", "\u0000", "\n", "\"", "\\", "<", "&", "=", ",", "!", "(", ")", "\ufffd", "\u2028"}

// text returns a short text of common and difficult characters.
func (r *random) text() string {
	var b strings.Builder
	for range r.below(12) {
		b.WriteString(pick(r, letters))
	}
	return b.String()
}

// name returns a DNS label.
func (r *random) name() string {
	const characters = "abcdefghijklmnopqrstuvwxyz0123456789"
	b := []byte{characters[r.below(26)]}
	for range r.below(r.between(1, 20)) {
		b = append(b, characters[r.below(len(characters))])
	}
	return string(b)
}

// stringMap returns up to n labels or annotations.
func (r *random) stringMap(n int) map[string]string {
	m := map[string]string{}
	for range r.below(n + 1) {
		m[r.name()] = pick(r, []string{r.name(), r.text(), ""})
	}
	return m
}

// exact returns all bits of a float as text, because JSON has no NaN.
func exact(f float64) string { return strconv.FormatFloat(f, 'x', -1, 64) }
