package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// answered returns the answers to the requests of a control channel: their lines, and the bytes after each line.
//
// Only requests that change nothing are answered, and they read one file: a fuzzer must not write files or send
// signals.
func answered(t *testing.T, path string, control []byte) (answers []map[string]any, contents [][]byte) {
	var output bytes.Buffer
	sender := newSender(&output)
	all := newComponents(sender.send, nil)
	for line := range bytes.Lines(control) {
		var r request
		if json.Unmarshal(line, &r) != nil {
			continue
		}
		switch r.Do {
		case "read":
			r.Path = path
		case "start", "signal", "clock", "timers", "measure", "write", "patience", "quiet", "trim":
			r.Do = "unknown " + r.Do
		}
		all.answer(&r, sender)
		text, err := output.ReadBytes('\n')
		if err != nil {
			t.Fatalf("no whole line answers %+v: %v", r, err)
		}
		var answer map[string]any
		if err := json.Unmarshal(text, &answer); err != nil {
			t.Fatalf("the answer to %+v is not JSON: %v: %s", r, err, text)
		}
		if id, isNumber := answer["id"].(float64); !isNumber || id != float64(r.ID) {
			t.Fatalf("the answer to %+v has another id: %s", r, text)
		}
		announced, _ := answer["bytes"].(float64)
		if float64(output.Len()) != announced {
			t.Fatalf("the answer to %+v announces %v bytes, and %d follow", r, announced, output.Len())
		}
		answers = append(answers, answer)
		contents = append(contents, slices.Clone(output.Bytes()))
		output.Reset()
	}
	return answers, contents
}

// sparse makes a file of 9000 bytes with a hole.
func sparse(t testing.TB) (string, []byte) {
	content := make([]byte, 9000)
	copy(content, "begin")
	copy(content[8192:], "end")
	path := filepath.Join(t.TempDir(), "file")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, at := range []int64{0, 8192} {
		if _, err := file.WriteAt(bytes.TrimRight(content[at:at+8], "\x00"), at); err != nil {
			t.Fatal(err)
		}
	}
	if err := file.Truncate(int64(len(content))); err != nil {
		t.Fatal(err)
	}
	return path, content
}

func FuzzRequests(f *testing.F) {
	f.Add([]byte(`{"id":1,"do":"read","offset":0,"length":4194304}` + "\n" + `{"id":2,"do":"read","offset":8000,"length":5}` + "\n"))
	f.Add([]byte(`{"id":3,"do":"read","offset":-1,"length":-9223372036854775808}` + "\n"))
	f.Add([]byte(`{"id":4,"do":"read","offset":9223372036854775807,"length":9223372036854775807}` + "\n"))
	f.Add([]byte(`{"id":5,"do":"wait","name":"default/etcd","millis":-9223372036854775808}` + "\nno JSON\n"))
	f.Add([]byte(`{"id":6,"do":"start","name":"x","program":"true","args":["a"],"env":{"A":"b"}}` + "\n"))
	path, content := sparse(f)
	f.Fuzz(func(t *testing.T, control []byte) {
		answers, contents := answered(t, path, control)
		for n, answer := range answers {
			offset, isRead := answer["offset"].(float64)
			if !isRead {
				continue
			}
			end := int(offset) + len(contents[n])
			if answer["size"].(float64) != float64(len(content)) || end > len(content) {
				t.Fatalf("%v is not an answer about %d bytes", answer, len(content))
			}
			if !bytes.Equal(contents[n], content[int(offset):end]) {
				t.Fatalf("%v: the bytes are not those of the file", answer)
			}
		}
	})
}

func TestNegativeReadsAreRefused(t *testing.T) {
	path, _ := sparse(t)
	for _, r := range []struct{ offset, length int64 }{{0, -1}, {0, math.MinInt64}, {-1, 1}, {math.MinInt64, 1}} {
		if _, content, err := readFile(path, r.offset, r.length); err == nil || len(content) > 0 {
			t.Errorf("a read of %d bytes at %d gave %d bytes and the error %v", r.length, r.offset, len(content), err)
		}
	}
}

func FuzzFrames(f *testing.F) {
	f.Add([]byte("N\x00\x15{\"token\":\"0123456789\"}"))
	f.Add([]byte("\x00\x00I\x00\x02hiI\x00\x00W\x00\x04\x00\x18\x00\x50"))
	f.Add([]byte("N\xff\xffshort"))
	f.Fuzz(func(t *testing.T, sent []byte) {
		from := bufio.NewReader(bytes.NewReader(sent))
		rest := sent
		for {
			kind, payload, err := readFrame(from)
			if err != nil {
				if err != io.EOF && err != io.ErrUnexpectedEOF {
					t.Fatalf("a frame ends with %v", err)
				}
				return
			}
			var again bytes.Buffer
			(&frames{to: &again}).send(kind, payload)
			rest = bytes.TrimLeft(rest, "\x00")
			if !bytes.HasPrefix(rest, again.Bytes()) {
				t.Fatalf("the frame %q was sent as %q", again.Bytes(), rest)
			}
			rest = rest[again.Len():]
		}
	})
}

func FuzzWish(f *testing.F) {
	f.Add([]byte(`{"token":"t","command":["ls","-l"],"terminal":"xterm","rows":24,"columns":80}`))
	f.Add([]byte(`{"command":["echo hi"]}`))
	f.Add([]byte(`{"rows":65536}`))
	f.Fuzz(func(t *testing.T, payload []byte) {
		var w wish
		if json.Unmarshal(payload, &w) != nil {
			return
		}
		words := w.arguments()
		if words[0] != "sh" || !slices.Equal(words[len(words)-len(w.Command):], w.Command) {
			t.Fatalf("%q becomes %q", w.Command, words)
		}
	})
}

func FuzzForward(f *testing.F) {
	f.Add([]byte("a line\nand another\nwithout an end"))
	f.Add([]byte("\n\n"))
	f.Add(append(bytes.Repeat([]byte("x"), 70<<10), '\n'))
	f.Fuzz(func(t *testing.T, printed []byte) {
		reader, writer, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			writer.Write(printed)
			writer.Close()
		}()
		var output bytes.Buffer
		newComponents(newSender(&output).send, nil).forward("c", reader)
		var told []byte
		for output.Len() > 0 {
			line, err := output.ReadBytes('\n')
			var m struct {
				Component string `json:"component"`
				Bytes     int    `json:"bytes"`
			}
			if err != nil || json.Unmarshal(line, &m) != nil || m.Component != "c" || m.Bytes > output.Len() {
				t.Fatalf("%q announces output, %d bytes follow", line, output.Len())
			}
			told = append(told, output.Next(m.Bytes)...)
		}
		if !bytes.Equal(told, printed) {
			t.Fatalf("%d bytes were printed and %d were told", len(printed), len(told))
		}
	})
}
