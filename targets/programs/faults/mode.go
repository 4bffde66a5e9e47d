package main

import (
	"fmt"
	"strconv"
	"time"
)

// mode selects what happens to connections. The file has one line `TOKEN MODE` or `TOKEN delay MILLISECONDS`.
//
//	pass   bytes pass
//	cut    all connections are reset, new ones as soon as they are made
//	hold   connections stay, new ones are made, and no bytes pass
//	half   bytes from the apiserver pass, bytes from the store are held
//	delay  bytes pass in each direction after this number of milliseconds
type mode struct {
	token string
	name  string
	delay time.Duration
}

func parse(words []string) (mode, error) {
	if len(words) == 2 {
		switch words[1] {
		case "pass", "cut", "hold", "half":
			return mode{token: words[0], name: words[1]}, nil
		}
	}
	if len(words) == 3 && words[1] == "delay" {
		milliseconds, err := strconv.Atoi(words[2])
		return mode{words[0], words[1], time.Duration(milliseconds) * time.Millisecond}, err
	}
	return mode{}, fmt.Errorf("%q is not a token and a mode", words)
}

// holds reports whether bytes of that direction have to wait for another mode.
func (m mode) holds(direction int) bool {
	return m.name == "hold" || m.name == "half" && direction == down
}
