package main

import (
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// Two runs of one tool at the same time: the second was refused, because the table had one process of each name. Each end
// of a pipe waits for the other.
func TestMeasuresTwoProgramsOfOneName(t *testing.T) {
	all := newComponents(func(message, ...byte) {}, nil)
	go all.reap()
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	answers := make(chan any, 2)
	for _, script := range []string{"cat " + pipe, "echo text > " + pipe} {
		go func() {
			answer, err := all.measure("tool", "sh", []string{"-c", script}, map[string]string{"PATH": "/usr/bin:/bin"})
			if err != nil {
				answers <- err
			} else {
				answers <- answer["output"]
			}
		}()
	}
	outputs := map[any]bool{<-answers: true, <-answers: true}
	if !outputs["text\n"] || !outputs[""] {
		t.Fatalf("outputs: %v", outputs)
	}
	all.mutex.Lock()
	defer all.mutex.Unlock()
	if len(all.byName) != 0 {
		t.Fatalf("processes that have ended stay in the table: %v", all.byName)
	}
}
