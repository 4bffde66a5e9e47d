package main

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// request is a line of JSON from the harness. Each is answered by a line with its id, in any order.
type request struct {
	ID int64  `json:"id"`
	Do string `json:"do"`

	Name    string            `json:"name"`
	Program string            `json:"program"`
	Args    []string          `json:"args"`
	Env     map[string]string `json:"env"`
	Signal  int               `json:"signal"`

	Path   string `json:"path"`
	Mode   uint32 `json:"mode"`
	Data   string `json:"data"` // base64
	Offset int64  `json:"offset"`
	Length int64  `json:"length"`

	UnixNanos  int64 `json:"unix_nanos"`
	LostTimers bool  `json:"lost_timers"`
	Millis     int64 `json:"millis"`
	Late       int64 `json:"late_millis"`
}

// longestOutput is the maximum number of bytes that a measured program may print: this process must not run out of memory.
const longestOutput = 32 << 20

// longestRead is the maximum number of bytes of a file in one answer; the harness accepts no longer answer.
const longestRead = 4 << 20

// message is a line of JSON to the harness.
type message map[string]any

// sender writes whole lines from many goroutines.
type sender struct {
	mutex sync.Mutex
	to    io.Writer
}

func newSender(to io.Writer) *sender { return &sender{to: to} }

// send writes a message, followed after its line by the bytes that it announces. Output is sent without quoting,
// because quoting takes noticeable time on an emulated processor.
func (s *sender) send(m message, bytes ...byte) {
	line, err := json.Marshal(m)
	if err != nil {
		line = []byte(fmt.Sprintf(`{"error":%q}`, err.Error()))
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	line = append(append(line, '\n'), bytes...)
	if _, err := s.to.Write(line); err != nil {
		fmt.Printf("archproof: a message was lost: %v\n", err)
	}
}

// serve answers requests until the connection ends.
func serve(control io.Reader, answers *sender, all *components) error {
	answers.send(message{"hello": true, "cpus": runtime.NumCPU(), "release": release()})
	lines := bufio.NewReaderSize(control, 1<<20)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return fmt.Errorf("the control channel failed: %w", err)
		}
		var r request
		if err := json.Unmarshal(line, &r); err != nil {
			answers.send(message{"id": r.ID, "error": "not understood: " + err.Error()})
			continue
		}
		if r.LostTimers {
			// This must stay on this goroutine: see rearm.
			all.answer(&r, answers)
			continue
		}
		go all.answer(&r, answers)
	}
}

func (c *components) answer(r *request, answers *sender) {
	var answer message
	var content []byte
	var err error
	if r.Do == "read" {
		answer, content, err = readFile(r.Path, r.Offset, r.Length)
	} else {
		answer, err = c.do(r)
	}
	if answer == nil {
		answer = message{}
	}
	if err != nil {
		answer["error"] = err.Error()
	}
	answer["id"] = r.ID
	answers.send(answer, content...)
}

func (c *components) do(r *request) (message, error) {
	switch r.Do {
	case "start":
		pid, err := c.start(r.Name, r.Program, r.Args, r.Env)
		return message{"pid": pid}, err
	case "signal":
		return nil, c.signal(r.Name, r.Signal)
	case "wait":
		return c.wait(r.Name, time.Duration(r.Millis)*time.Millisecond)
	case "clock":
		return nil, setClock(r.UnixNanos, r.LostTimers, r.Data)
	case "timers":
		return timers(time.Duration(r.Millis) * time.Millisecond)
	case "measure":
		return c.measure(r.Name, r.Program, r.Args, r.Env, time.Duration(r.Millis)*time.Millisecond)
	case "write":
		return nil, writeFile(r.Path, os.FileMode(r.Mode), r.Data)
	case "patience":
		c.setPatience(patience{
			slice: time.Duration(r.Millis) * time.Millisecond,
			late:  time.Duration(r.Late) * time.Millisecond,
		})
		return nil, nil
	case "quiet":
		// From now on output goes into files only; the other end of the output need not be read any more.
		return nil, unix.Dup3(int(devNull()), int(os.Stdout.Fd()), 0)
	case "trim":
		return nil, trim()
	case "hardware":
		return hardware()
	}
	return nil, fmt.Errorf("unknown request %q", r.Do)
}

// wait returns how a component ended, as soon as it has ended or when the time is up.
func (c *components) wait(name string, limit time.Duration) (message, error) {
	p, err := c.state(name)
	if err != nil {
		return nil, err
	}
	select {
	case <-p.ended:
	case <-time.After(limit):
	}
	if p, err = c.state(name); err != nil {
		return nil, err
	}
	if p.status == "" {
		return message{"pid": p.pid}, nil
	}
	return message{"pid": p.pid, "ended": p.status}, nil
}

// setClock also feeds fresh random bytes to the kernel: a restored guest repeats the old ones.
func setClock(nanos int64, lostTimers bool, random string) error {
	if lostTimers {
		if err := rearm(nanos); err != nil {
			return err
		}
	}
	if err := setTime(nanos); err != nil {
		return err
	}
	bytes, err := base64.StdEncoding.DecodeString(random)
	if err != nil || len(bytes) == 0 {
		return err
	}
	return reseed(bytes)
}

// timers sleeps for a short time on each processor at the same time and returns how long that took, in milliseconds.
//
// In a badly restored guest the timer of a processor never fires, and a sleep there never ends: then its entry is -1.
func timers(limit time.Duration) (message, error) {
	const nap = 2 * time.Millisecond
	type slept struct {
		cpu    int
		millis float64
	}
	cpus := runtime.NumCPU()
	done := make(chan slept, cpus)
	for cpu := range cpus {
		go func() {
			// The thread is never unlocked: it ends with the goroutine, together with its affinity.
			runtime.LockOSThread()
			var set unix.CPUSet
			set.Set(cpu)
			if err := unix.SchedSetaffinity(0, &set); err != nil {
				return
			}
			begin := time.Now()
			request := unix.NsecToTimespec(nap.Nanoseconds())
			unix.Nanosleep(&request, nil)
			done <- slept{cpu, float64(time.Since(begin).Microseconds()) / 1000}
		}()
	}
	millis := make([]float64, cpus)
	for cpu := range millis {
		millis[cpu] = -1
	}
	deadline := time.After(limit)
	for range cpus {
		select {
		case s := <-done:
			millis[s.cpu] = s.millis
		case <-deadline:
			return message{"millis": millis}, nil
		}
	}
	return message{"millis": millis}, nil
}

// measure runs a program to its end and returns its output, its time in seconds, and how it ended. Several with the same
// name may run at the same time. A program that runs longer than the limit is killed: the harness no longer waits for it,
// and it would change what later checks see. The limit 0 is none.
func (c *components) measure(
	name, program string, args []string, env map[string]string, limit time.Duration,
) (message, error) {
	begin := time.Now()
	name = fmt.Sprintf("%s/%d", name, c.measured.Add(1))
	p, output, err := c.spawn(name, program, args, env)
	if err != nil {
		return nil, err
	}
	close(p.sent)
	defer output.Close()
	if limit > 0 {
		defer time.AfterFunc(limit, func() { c.signal(name, int(unix.SIGKILL)) }).Stop()
		// A process that it left behind may keep the pipe open.
		output.SetReadDeadline(begin.Add(limit + outputLimit))
	}
	text, err := io.ReadAll(io.LimitReader(output, longestOutput+1))
	if len(text) > longestOutput {
		err = fmt.Errorf("more than %d bytes", longestOutput)
	}
	if err != nil {
		c.signal(name, int(unix.SIGKILL))
	}
	<-p.ended
	defer c.forget(name)
	if err != nil {
		return nil, fmt.Errorf("read the output of %s (%s): %w", program, p.status, err)
	}
	seconds := time.Since(begin).Seconds()
	return message{"seconds": seconds, "output": string(text), "ended": p.status}, nil
}

func writeFile(path string, mode os.FileMode, data string) error {
	bytes, err := base64.StdEncoding.DecodeString(data)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	// Replace the file atomically: an apiserver may be reading it.
	draft := path + ".new"
	if err := os.WriteFile(draft, bytes, mode); err != nil {
		return err
	}
	return os.Rename(draft, path)
}

// readFile returns the next bytes of a file from an offset on, at most length, together with their offset (after a
// hole) and the size of the whole file. At the end of the file it returns no bytes.
func readFile(path string, offset, length int64) (message, []byte, error) {
	// A panic here would be a panic of the first process, and would end the machine.
	if offset < 0 || length < 0 {
		return nil, nil, fmt.Errorf("read %s: the offset %d and the length %d must not be negative", path, offset, length)
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, nil, err
	}
	size := info.Size()
	begin, err := file.Seek(offset, unix.SEEK_DATA)
	if errors.Is(err, unix.ENXIO) {
		return message{"size": size, "offset": size}, nil, nil
	} else if err != nil {
		return nil, nil, err
	}
	end, err := file.Seek(begin, unix.SEEK_HOLE)
	if err != nil {
		return nil, nil, err
	}
	buffer := make([]byte, min(length, end-begin, longestRead))
	n, err := file.ReadAt(buffer, begin)
	if err != nil && err != io.EOF {
		return nil, nil, err
	}
	return message{"size": size, "offset": begin, "bytes": n}, buffer[:n], nil
}

// trim frees memory that a snapshot would otherwise contain: garbage, and caches of files that can be read again. It
// also prevents a garbage collection in a restored guest before its timers fire: see rearm.
func trim() error {
	debug.FreeOSMemory()
	unix.Sync()
	return os.WriteFile("/proc/sys/vm/drop_caches", []byte("3"), 0o200)
}

func release() string {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return ""
	}
	return unix.ByteSliceToString(name.Release[:])
}

func notifyChildren(to chan<- os.Signal) { signal.Notify(to, syscall.SIGCHLD) }
