package main

import (
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// reaped returns the only components of these tests: several reapers would wait for each other's processes.
var reaped = sync.OnceValue(func() *components {
	all := newComponents(func(message, ...byte) {}, nil)
	go all.reap()
	return all
})

// Two runs of one tool at the same time: the second was refused, because the table had one process of each name. Each end
// of a pipe waits for the other.
func TestMeasuresTwoProgramsOfOneName(t *testing.T) {
	all := reaped()
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	answers := make(chan any, 2)
	for _, script := range []string{"cat " + pipe, "echo text > " + pipe} {
		go func() {
			path := map[string]string{"PATH": "/usr/bin:/bin"}
			answer, err := all.measure("tool", "sh", []string{"-c", script}, path, 0)
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

func TestKillsProgramAfterItsLimit(t *testing.T) {
	path := map[string]string{"PATH": "/usr/bin:/bin"}
	answer, err := reaped().measure("tool", "sh", []string{"-c", "echo text; sleep 600"}, path, 100*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if ended := answer["ended"]; ended != "signal: 9 (SIGKILL)" {
		t.Fatalf("ended: %v", ended)
	}
}
