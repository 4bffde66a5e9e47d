package main

import (
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// early is a component that has ended before the reaper begins.
const early = "early"

// ends receives the names of components of these tests when they have ended, and the output that was sent before.
var ends = make(chan map[string]string, 100)

// reaped returns the only components of these tests: several reapers would wait for each other's processes.
var reaped = sync.OnceValue(func() *components {
	var mutex sync.Mutex
	sent := map[string]string{}
	all := newComponents(func(m message, bytes ...byte) {
		name := m["component"].(string)
		if len(bytes) > 0 {
			// A slow reader of the output.
			time.Sleep(100 * time.Millisecond)
		}
		mutex.Lock()
		defer mutex.Unlock()
		sent[name] += string(bytes)
		if m["ended"] != nil {
			ends <- map[string]string{name: sent[name]}
		}
	}, nil)
	pid, err := all.start(early, "true", nil, nil)
	if err != nil {
		panic(err)
	}
	if err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
		panic(err)
	}
	all.reap()
	return all
})

func TestReapsChildThatEndedBeforeTheReaperBegan(t *testing.T) {
	p, err := reaped().state(early)
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-p.ended:
	case <-time.After(time.Minute):
		t.Fatal("the signal of the first child was missed")
	}
}

// The harness reads the log of a component when it gets the report of its end.
func TestEndIsToldAfterTheOutput(t *testing.T) {
	all := reaped()
	path := map[string]string{"PATH": "/usr/bin:/bin"}
	if _, err := all.start("crashing", "sh", []string{"-c", "echo begin; sleep 0.01; echo fatal; exit 1"}, path); err != nil {
		t.Fatal(err)
	}
	limit := time.After(time.Minute)
	for {
		select {
		case end := <-ends:
			if text, is := end["crashing"]; is && text != "begin\nfatal\n" {
				t.Fatalf("sent before the end: %q", text)
			} else if is {
				return
			}
		case <-limit:
			t.Fatal("the end was not reported")
		}
	}
}

func TestMeasureRefusesEndlessOutput(t *testing.T) {
	path := map[string]string{"PATH": "/usr/bin:/bin"}
	answer, err := reaped().measure("endless", "yes", nil, path, 0)
	if err == nil || answer != nil {
		t.Fatalf("answered: %v", answer["ended"])
	}
}

// A process that the program leaves behind has its output: the answer must not wait for it.
func TestMeasureEndsAlthoughThePipeStaysOpen(t *testing.T) {
	path := map[string]string{"PATH": "/usr/bin:/bin"}
	script := []string{"-c", "setsid sleep 30 & echo text"}
	begin := time.Now()
	if _, err := reaped().measure("leaving", "sh", script, path, 100*time.Millisecond); err == nil {
		t.Fatal("the output has ended")
	}
	if took := time.Since(begin); took > 25*time.Second {
		t.Fatalf("answered after %v", took)
	}
}

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
	for name := range all.byName {
		if strings.HasPrefix(name, "tool/") {
			t.Fatalf("%s has ended and stays in the table", name)
		}
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
