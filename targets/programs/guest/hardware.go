package main

import (
	"os"

	"golang.org/x/sys/unix"
)

// hardware returns what this process can read about the processors and the memory; the harness interprets it. A text is
// empty if this kernel does not have the file.
func hardware() (message, error) {
	auxv, err := unix.Auxv()
	if err != nil {
		return nil, err
	}
	text := func(path string) string {
		content, _ := os.ReadFile(path)
		return string(content)
	}
	return message{
		"auxv":    auxv,
		"cpuinfo": text("/proc/cpuinfo"),
		"maps":    text("/proc/self/maps"),
		"cpus":    text("/sys/devices/system/cpu/online"),
		"nodes":   text("/sys/devices/system/node/online"),
	}, nil
}
