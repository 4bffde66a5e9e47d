package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// On a slow disk, fsync and fdatasync take long. The kernel suspends these two calls of the program (seccomp, user
// notification), and continues them when a second process allows it. Nothing else of the program is changed, and
// neither root nor ptrace is needed. The program keeps the process ID with which it was started.

// slowDisk executes the program. If the filter cannot be installed, it prints why, and the program gets a normal disk.
func slowDisk(control string, program []string) error {
	isFiltered, err := filtered(control)
	switch {
	case isFiltered && err != nil:
		// Each fsync of the program would fail, and the program would say that the disk is broken.
		return fmt.Errorf("the process that decides over fsync has ended: %w", err)
	case err != nil:
		fmt.Println("slow-disk: not here:", err)
	}
	path, err := exec.LookPath(program[0])
	if err != nil {
		return err
	}
	return fmt.Errorf("exec of %s: %w", program[0], unix.Exec(path, program, os.Environ()))
}

// filtered starts the deciding process, and installs the filter on this thread, which then executes the program. It returns
// whether the filter is installed.
func filtered(control string) (bool, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return false, err
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "ours"), os.NewFile(uintptr(pair[1]), "theirs")
	defer ours.Close()
	defer theirs.Close()
	files := []*os.File{nil, os.Stdout, os.Stderr, theirs}
	self := []string{os.Args[0], "supervise", control}
	if _, err := os.StartProcess("/proc/self/exe", self, &os.ProcAttr{Env: os.Environ(), Files: files}); err != nil {
		return false, err
	}
	theirs.Close()
	listener, err := filter()
	if err != nil {
		return false, err
	}
	defer unix.Close(listener)
	// From here on an fsync without a deciding process would fail.
	if err := unix.Sendmsg(pair[0], []byte{0}, unix.UnixRights(listener), nil, 0); err != nil {
		return true, err
	}
	_, err = ours.Read(make([]byte, 1))
	return true, err
}

// filter suspends fsync and fdatasync of this thread and of the program that it executes; returns the notification fd.
func filter() (int, error) {
	program := []unix.SockFilter{
		// The number of the system call.
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: 1, Jf: 0, K: unix.SYS_FSYNC},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: 0, Jf: 1, K: unix.SYS_FDATASYNC},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_USER_NOTIF},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	// The kernel requires this of an unprivileged process.
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return 0, fmt.Errorf("no_new_privs: %w", err)
	}
	filter := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	// If the kernel supports it (5.19), a signal of the Go runtime does not restart the wait.
	for _, more := range []uintptr{unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV, 0} {
		flags := unix.SECCOMP_FILTER_FLAG_NEW_LISTENER | more
		fd, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&filter)))
		runtime.KeepAlive(program)
		switch {
		case errno == 0:
			return int(fd), nil
		case errno != unix.EINVAL || more == 0:
			return 0, fmt.Errorf("seccomp: %w", errno)
		}
	}
	return 0, errors.New("seccomp refused")
}

// disk decides how long an fsync takes.
type disk struct {
	lock    sync.Mutex
	token   string
	delay   time.Duration
	changed chan struct{}
	count   *syncs
}

// syncs counts the suspended calls during one delay.
type syncs struct{ all, delayed atomic.Int64 }

// supervise continues each fsync of the program after the delay in the file; it ends with the program.
func supervise(control string) error {
	listener, answer, err := receive()
	if err != nil {
		return err
	}
	d := &disk{changed: make(chan struct{}), count: &syncs{}}
	failed := make(chan error, 2)
	if err := follow(control, d.read, failed); err != nil {
		return err
	}
	if _, err := answer.Write([]byte{0}); err != nil {
		return err
	}
	go func() { failed <- d.serve(listener) }()
	return <-failed
}

// receive gets the notification fd that filter returned.
func receive() (int, *os.File, error) {
	const socket = 3
	space := make([]byte, unix.CmsgSpace(4))
	_, length, _, _, err := unix.Recvmsg(socket, make([]byte, 1), space, unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		return 0, nil, err
	}
	messages, err := unix.ParseSocketControlMessage(space[:length])
	if err != nil {
		return 0, nil, err
	}
	if len(messages) != 1 {
		return 0, nil, errors.New("the program did not send its seccomp listener")
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil {
		return 0, nil, err
	}
	return fds[0], os.NewFile(socket, "program"), nil
}

// read parses a line `TOKEN MILLISECONDS`.
func (d *disk) read(words []string) error {
	if len(words) != 2 {
		return fmt.Errorf("%q is not a token and a delay", words)
	}
	milliseconds, err := strconv.Atoi(words[1])
	if err != nil {
		return err
	}
	d.lock.Lock()
	defer d.lock.Unlock()
	if words[0] == d.token {
		return nil
	}
	last, count := d.delay, d.count
	d.token, d.delay, d.count = words[0], time.Duration(milliseconds)*time.Millisecond, &syncs{}
	close(d.changed)
	d.changed = make(chan struct{})
	fmt.Printf("slow-disk: %s %d after %d syncs=%d delayed=%d\n",
		d.token, milliseconds, last.Milliseconds(), count.all.Load(), count.delayed.Load())
	return nil
}

func (d *disk) now() (time.Duration, *syncs, <-chan struct{}) {
	d.lock.Lock()
	defer d.lock.Unlock()
	return d.delay, d.count, d.changed
}

// notice is struct seccomp_notif, verdict is struct seccomp_notif_resp.
type notice struct {
	id    uint64
	pid   uint32
	flags uint32
	data  [64]byte
}

type verdict struct {
	id    uint64
	value int64
	err   int32
	flags uint32
}

func (d *disk) serve(listener int) error {
	for {
		poll := []unix.PollFd{{Fd: int32(listener), Events: unix.POLLIN}}
		if _, err := unix.Poll(poll, -1); err != nil && err != unix.EINTR {
			return fmt.Errorf("poll: %w", err)
		}
		if poll[0].Revents&unix.POLLIN == 0 && poll[0].Revents&unix.POLLHUP != 0 {
			return nil
		}
		if poll[0].Revents&unix.POLLIN == 0 {
			continue
		}
		var seen notice
		err := ioctl(listener, unix.SECCOMP_IOCTL_NOTIF_RECV, unsafe.Pointer(&seen))
		switch err {
		case 0:
			d.decide(listener, seen.id)
		case unix.EINTR, unix.ENOENT:
			// The thread has died in the meantime.
		default:
			return fmt.Errorf("receive: %w", err)
		}
	}
}

// decide continues one call, now or later. The kernel then does the fsync normally.
func (d *disk) decide(listener int, id uint64) {
	proceed := func() {
		allowed := verdict{id: id, flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}
		// A thread that no longer waits needs no answer.
		ioctl(listener, unix.SECCOMP_IOCTL_NOTIF_SEND, unsafe.Pointer(&allowed))
	}
	delay, count, changed := d.now()
	count.all.Add(1)
	if delay == 0 {
		proceed()
		return
	}
	count.delayed.Add(1)
	go func() {
		select {
		case <-time.After(delay):
		case <-changed:
		}
		proceed()
	}()
}

func ioctl(fd int, request uintptr, argument unsafe.Pointer) unix.Errno {
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), request, uintptr(argument))
	return errno
}
