package main

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Kinds of frames on the shell port. A frame consists of its kind, the length of its payload in two bytes, and the
// payload; numbers are big-endian. Between frames the harness may send zeroes, which complete the rest of a broken
// frame.
const (
	// To the guest.
	frameNew   = 'N' // a wish as JSON; ends the session before
	frameInput = 'I' // empty at the end of the input; at most inputRoom frames may be sent ahead of frameTaken
	frameSize  = 'W' // rows and columns, two bytes each
	// To the harness.
	frameBegun  = 'S' // the wish's token; frames before it belong to an earlier session
	frameOutput = 'O'
	frameErrors = 'E'
	frameTaken  = 'T' // the program has taken a frame of input
	frameExit   = 'X' // the exit status in one byte: the last frame of a session
	frameFailed = 'F' // why the session could not begin: also the last frame
)

// inputRoom limits the input that waits for a program that does not read, so that the port is always read.
const inputRoom = 8

// wish describes a requested session.
type wish struct {
	Token string `json:"token"`
	// Empty: a shell. One word: a shell command line. Several: a program and its arguments.
	Command []string `json:"command"`
	// The terminal's type; empty for pipes.
	Terminal string `json:"terminal"`
	Rows     uint16 `json:"rows"`
	Columns  uint16 `json:"columns"`
}

// session is a shell or another program that is connected to the other end of the port.
type session struct {
	all     *components
	name    string
	process *process
	to      *frames
	typed   chan []byte
	size    func(rows, columns uint16)
	once    sync.Once
	over    chan struct{}
}

// shell serves root shells, one after the other. A session ends with its program, or when the harness disconnects.
func shell(all *components) {
	port, err := openPort("archproof.shell")
	if err != nil {
		fmt.Printf("archproof: no shell: %v\n", err)
		return
	}
	to := &frames{to: port}
	from := bufio.NewReader(connection{port})
	var current *session
	for number := 1; ; {
		kind, payload, err := readFrame(from)
		switch {
		case err != nil: // the harness is not connected
			current.end()
			from.Reset(connection{port})
			// Every 50 ms it was 3 % of an emulated processor.
			time.Sleep(500 * time.Millisecond)
		case kind == frameNew:
			current.end()
			var w wish
			current, err = nil, json.Unmarshal(payload, &w)
			if err == nil {
				current, err = begin(all, to, fmt.Sprintf("shell/%d", number), &w)
				number++
			}
			if err != nil {
				to.send(frameBegun, []byte(w.Token))
				to.send(frameFailed, []byte(err.Error()))
			}
		case current == nil:
		case kind == frameInput:
			current.input(payload)
		case kind == frameSize && len(payload) == 4 && !current.isOver():
			current.size(binary.BigEndian.Uint16(payload), binary.BigEndian.Uint16(payload[2:]))
		}
	}
}

// arguments returns the arguments with which the shell is started.
func (w *wish) arguments() []string {
	switch len(w.Command) {
	case 0:
		return []string{"sh", "-l"}
	case 1:
		return []string{"sh", "-c", w.Command[0]}
	default:
		// busybox's shell runs the command, because it knows the programs that busybox contains.
		return append([]string{"sh", "-c", `"$@"`, "sh"}, w.Command...)
	}
}

// begin starts the program of a session.
func begin(all *components, to *frames, name string, w *wish) (*session, error) {
	environment := []string{"PATH=/bin", "HOME=/root", "PS1=" + runtime.GOARCH + `:\w# `}
	var ends *streams
	var err error
	if w.Terminal == "" {
		ends, err = pipes()
	} else {
		environment = append(environment, "TERM="+w.Terminal)
		ends, err = terminal(w.Rows, w.Columns)
	}
	if err != nil {
		return nil, err
	}
	process, err := all.register(name, func() (int, error) {
		return syscall.ForkExec("/bin/busybox", w.arguments(), &syscall.ProcAttr{
			Dir:   "/root",
			Env:   environment,
			Files: []uintptr{uintptr(ends.inside[0]), uintptr(ends.inside[1]), uintptr(ends.inside[2])},
			Sys:   &syscall.SysProcAttr{Setsid: true, Setctty: w.Terminal != ""},
		})
	})
	for _, fd := range ends.inside {
		unix.Close(fd)
	}
	if err != nil {
		ends.close()
		return nil, fmt.Errorf("run the shell: %w", err)
	}
	close(process.sent)
	s := &session{
		all: all, name: name, process: process, to: to, size: ends.size,
		typed: make(chan []byte, inputRoom), over: make(chan struct{}),
	}
	to.send(frameBegun, []byte(w.Token))
	go s.feed(ends.input)
	go s.follow(ends)
	return s, nil
}

// follow forwards the output, and at its end reports how the program has ended.
func (s *session) follow(ends *streams) {
	var copies sync.WaitGroup
	for kind, from := range ends.outputs {
		copies.Add(1)
		go func() {
			defer copies.Done()
			buffer := make([]byte, 16<<10)
			for {
				n, err := from.Read(buffer)
				if n > 0 && !s.isOver() {
					s.to.send(kind, buffer[:n])
				}
				// EIO occurs when the last process has closed a terminal.
				if err != nil {
					from.Close()
					return
				}
			}
		}()
	}
	copies.Wait()
	<-s.process.ended
	if !s.isOver() {
		s.to.send(frameExit, []byte{s.all.exitCode(s.name)})
	}
	s.once.Do(func() { close(s.over) })
	s.all.forget(s.name)
}

// feed writes the input to the program.
func (s *session) feed(to *os.File) {
	defer to.Close()
	for {
		select {
		case <-s.over:
			return
		case bytes := <-s.typed:
			if len(bytes) == 0 {
				return
			}
			// An error means that the program no longer reads; its exit status is reported separately.
			to.Write(bytes)
			if !s.isOver() {
				s.to.send(frameTaken, nil)
			}
		}
	}
}

func (s *session) input(bytes []byte) {
	select {
	case s.typed <- bytes:
	case <-s.over:
	}
}

func (s *session) isOver() bool {
	select {
	case <-s.over:
		return true
	default:
		return false
	}
}

// end hangs up, as a terminal does; processes that have not ended a second later are killed.
func (s *session) end() {
	if s == nil {
		return
	}
	s.once.Do(func() {
		close(s.over)
		unix.Kill(-s.process.pid, unix.SIGHUP)
		go func() {
			select {
			case <-s.process.ended:
			case <-time.After(time.Second):
				unix.Kill(-s.process.pid, unix.SIGKILL)
			}
		}()
	})
}

// streams are the ends of the pipes, or of the terminal, of a program.
type streams struct {
	// The program's descriptors; blocking, unlike those of Go's own files.
	inside  [3]int
	input   *os.File
	outputs map[byte]*os.File
	size    func(rows, columns uint16)
}

func (s *streams) close() {
	s.input.Close()
	for _, output := range s.outputs {
		output.Close()
	}
}

func pipes() (*streams, error) {
	var readers, writers [3]int
	for n := range readers {
		var ends [2]int
		if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
			return nil, err
		}
		readers[n], writers[n] = ends[0], ends[1]
	}
	// Non-blocking, so that closing one ends a pending read or write.
	near := func(fd int) *os.File {
		unix.SetNonblock(fd, true)
		return os.NewFile(uintptr(fd), "pipe")
	}
	return &streams{
		inside:  [3]int{readers[0], writers[1], writers[2]},
		input:   near(writers[0]),
		outputs: map[byte]*os.File{frameOutput: near(readers[1]), frameErrors: near(readers[2])},
		size:    func(uint16, uint16) {},
	}, nil
}

func terminal(rows, columns uint16) (*streams, error) {
	// Two descriptors of the master, because input and output are closed independently.
	master, name, err := openTerminal()
	if err != nil {
		return nil, err
	}
	input, err := unix.FcntlInt(uintptr(master), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		unix.Close(master)
		return nil, err
	}
	size := func(rows, columns uint16) {
		unix.IoctlSetWinsize(input, unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: columns})
	}
	size(rows, columns)
	s := &streams{
		input:   os.NewFile(uintptr(input), "terminal"),
		outputs: map[byte]*os.File{frameOutput: os.NewFile(uintptr(master), "terminal")},
		size:    size,
	}
	for n := range s.inside {
		if s.inside[n], err = unix.Open(name, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0); err != nil {
			s.close()
			return nil, err
		}
	}
	return s, nil
}

// openTerminal returns the master of a new pseudo terminal and the name of its slave.
func openTerminal() (int, string, error) {
	master, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, "", err
	}
	number, err := unix.IoctlGetInt(master, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		unix.Close(master)
		return -1, "", err
	}
	return master, "/dev/pts/" + strconv.Itoa(number), nil
}

// frames writes whole frames from several goroutines.
type frames struct {
	mutex sync.Mutex
	to    io.Writer
}

func (f *frames) send(kind byte, payload []byte) {
	frame := append([]byte{kind, byte(len(payload) >> 8), byte(len(payload))}, payload...)
	f.mutex.Lock()
	defer f.mutex.Unlock()
	// This blocks while the harness is not connected; the next connection skips frames of earlier sessions.
	f.to.Write(frame)
}

func readFrame(from *bufio.Reader) (byte, []byte, error) {
	var head [3]byte
	for head[0] == 0 {
		if _, err := io.ReadFull(from, head[:1]); err != nil {
			return 0, nil, err
		}
	}
	if _, err := io.ReadFull(from, head[1:]); err != nil {
		return 0, nil, err
	}
	payload := make([]byte, binary.BigEndian.Uint16(head[1:]))
	_, err := io.ReadFull(from, payload)
	return head[0], payload, err
}

// connection reads from a port until the harness disconnects.
type connection struct{ port *port }

func (c connection) Read(into []byte) (int, error) {
	n, err := c.port.readOnce(into)
	if n == 0 && err == nil {
		return 0, io.EOF
	}
	return n, err
}
