package main

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/base64"
	"fmt"
	"os"
	"strings"
)

// ring contains the keys of the file. Its lines are `ID KEY`, with 32 bytes in base64, and one `current ID`.
type ring struct {
	current string
	keys    map[string]cipher.AEAD
}

func readRing(file string) (*ring, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	r := &ring{keys: map[string]cipher.AEAD{}}
	for number, line := range strings.Split(string(text), "\n") {
		words := strings.Fields(line)
		switch {
		case len(words) == 0:
		case len(words) != 2:
			return nil, fmt.Errorf("%s:%d: expected two words", file, number+1)
		case words[0] == "current":
			r.current = words[1]
		default:
			if r.keys[words[0]], err = sealer(words[1]); err != nil {
				return nil, fmt.Errorf("%s:%d: %w", file, number+1, err)
			}
		}
	}
	if r.keys[r.current] == nil {
		return nil, fmt.Errorf("%s: the current key %q is missing", file, r.current)
	}
	return r, nil
}

func sealer(text string) (cipher.AEAD, error) {
	key, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, err
	}
	if len(key) != 32 {
		return nil, fmt.Errorf("a key of %d bytes, expected 32", len(key))
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}
