package main

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// shell serves root shells, one after the other, on a virtio-serial port: whoever connects and types gets one.
func shell() {
	port, err := openPort("archproof.shell")
	if err != nil {
		fmt.Printf("archproof: no shell: %v\n", err)
		return
	}
	typed := make(chan []byte)
	go func() {
		for {
			buffer := make([]byte, 4096)
			n, err := port.Read(buffer)
			if err != nil {
				close(typed)
				return
			}
			typed <- buffer[:n]
		}
	}()
	for first := range typed {
		if err := session(port, first, typed); err != nil {
			fmt.Fprintf(port, "archproof: %v\r\n", err)
		}
	}
}

// session runs one shell until it ends.
func session(port *port, first []byte, typed <-chan []byte) error {
	terminal, name, err := openTerminal()
	if err != nil {
		return err
	}
	defer terminal.Close()
	fd, err := unix.Open(name, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	_, err = syscall.ForkExec("/bin/busybox", []string{"sh", "-l"}, &syscall.ProcAttr{
		Dir:   "/",
		Env:   []string{"PATH=/bin", "HOME=/root", "TERM=vt100", "PS1=\\h:\\w# "},
		Files: []uintptr{uintptr(fd), uintptr(fd), uintptr(fd)},
		Sys:   &syscall.SysProcAttr{Setsid: true, Setctty: true},
	})
	unix.Close(fd)
	if err != nil {
		return fmt.Errorf("run the shell: %w", err)
	}
	ended := make(chan struct{})
	go func() {
		// Ends with EIO when the last process has closed the terminal.
		io.Copy(port, terminal)
		close(ended)
	}()
	if _, err := terminal.Write(first); err != nil {
		return err
	}
	for {
		select {
		case <-ended:
			_, err := io.WriteString(port, "\r\n[the shell has ended; a key starts another]\r\n")
			return err
		case keys, open := <-typed:
			if !open {
				return nil
			}
			if _, err := terminal.Write(keys); err != nil {
				return err
			}
		}
	}
}

// openTerminal gives the master of a new pseudo terminal and the name of its slave.
func openTerminal() (*os.File, string, error) {
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		return nil, "", err
	}
	fd := int(master.Fd())
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		master.Close()
		return nil, "", err
	}
	return master, "/dev/pts/" + strconv.Itoa(number), nil
}
