package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// The guest's fixed address in QEMU's user mode network. https://www.qemu.org/docs/master/system/devices/net.html
const (
	guestAddress = "10.0.2.15"
	guestMask    = "255.255.255.0"
)

// How long a device may take to appear after its driver was loaded. Even emulated machines are faster than that.
const deviceWait = 60 * time.Second

func mount() error {
	for _, m := range []struct{ source, target, kind, options string }{
		{"proc", "/proc", "proc", ""},
		{"sysfs", "/sys", "sysfs", ""},
		{"devtmpfs", "/dev", "devtmpfs", "mode=0755"},
		{"devpts", "/dev/pts", "devpts", "mode=0620"},
		{"tmpfs", "/dev/shm", "tmpfs", "mode=1777"},
		{"tmpfs", "/tmp", "tmpfs", "mode=1777"},
		{"tmpfs", "/run", "tmpfs", "mode=0755"},
	} {
		if err := os.MkdirAll(m.target, 0o755); err != nil {
			return err
		}
		// The kernel may have mounted /dev already.
		if err := unix.Mount(m.source, m.target, m.kind, 0, m.options); err != nil && err != unix.EBUSY {
			return fmt.Errorf("mount %s on %s: %w", m.kind, m.target, err)
		}
	}
	return nil
}

// loadModules loads the files of a folder, sorted by name.
func loadModules(folder string) error {
	files, err := filepath.Glob(filepath.Join(folder, "*.ko"))
	if err != nil {
		return err
	}
	sort.Strings(files)
	for _, name := range files {
		file, err := os.Open(name)
		if err != nil {
			return err
		}
		err = unix.FinitModule(int(file.Fd()), "", 0)
		file.Close()
		if err != nil && err != unix.EEXIST {
			return fmt.Errorf("load %s: %w", name, err)
		}
	}
	return nil
}

// network brings up loopback and the only Ethernet interface.
func network() error {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(socket)
	if err := up(socket, "lo"); err != nil {
		return err
	}
	name, err := ethernet()
	if err != nil {
		return err
	}
	for _, setting := range []struct {
		request uint
		address string
	}{{unix.SIOCSIFADDR, guestAddress}, {unix.SIOCSIFNETMASK, guestMask}} {
		request, err := unix.NewIfreq(name)
		if err != nil {
			return err
		}
		if err := request.SetInet4Addr(net.ParseIP(setting.address).To4()); err != nil {
			return err
		}
		if err := unix.IoctlIfreq(socket, setting.request, request); err != nil {
			return fmt.Errorf("give %s the address %s: %w", name, setting.address, err)
		}
	}
	return up(socket, name)
}

func up(socket int, name string) error {
	request, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	if err := unix.IoctlIfreq(socket, unix.SIOCGIFFLAGS, request); err != nil {
		return fmt.Errorf("network interface %s: %w", name, err)
	}
	request.SetUint16(request.Uint16() | unix.IFF_UP)
	if err := unix.IoctlIfreq(socket, unix.SIOCSIFFLAGS, request); err != nil {
		return fmt.Errorf("bring up %s: %w", name, err)
	}
	return nil
}

// ethernet waits for an interface that is backed by a device.
func ethernet() (string, error) {
	for begin := time.Now(); time.Since(begin) < deviceWait; time.Sleep(5 * time.Millisecond) {
		if found, _ := filepath.Glob("/sys/class/net/*/device"); len(found) > 0 {
			return filepath.Base(filepath.Dir(found[0])), nil
		}
	}
	return "", fmt.Errorf("no network interface appeared within %v", deviceWait)
}

// openPort opens the virtio-serial port that QEMU calls name.
//
// The file is blocking and not registered with Go's poller: a port whose other end is disconnected reads as end of
// file.
func openPort(name string) (*port, error) {
	for begin := time.Now(); time.Since(begin) < deviceWait; time.Sleep(5 * time.Millisecond) {
		names, _ := filepath.Glob("/sys/class/virtio-ports/*/name")
		for _, file := range names {
			text, err := os.ReadFile(file)
			if err != nil || strings.TrimSpace(string(text)) != name {
				continue
			}
			device := "/dev/" + filepath.Base(filepath.Dir(file))
			fd, err := unix.Open(device, unix.O_RDWR|unix.O_CLOEXEC, 0)
			if err != nil {
				return nil, fmt.Errorf("open %s (%s): %w", device, name, err)
			}
			return &port{fd: fd}, nil
		}
	}
	return nil, fmt.Errorf("no virtio-serial port %s appeared within %v", name, deviceWait)
}

// port is one end of a virtio-serial connection.
type port struct{ fd int }

// Read waits for the harness: while it is not connected, the kernel reports end of file again and again.
func (p *port) Read(into []byte) (int, error) {
	for {
		n, err := p.readOnce(into)
		if n > 0 || err != nil {
			return n, err
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// readOnce waits for bytes while the harness is connected; without it, it reads nothing.
func (p *port) readOnce(into []byte) (int, error) {
	for {
		n, err := unix.Read(p.fd, into)
		if err != unix.EINTR {
			return max(n, 0), err
		}
	}
}

func (p *port) Write(from []byte) (int, error) {
	written := 0
	for written < len(from) {
		n, err := unix.Write(p.fd, from[written:])
		if err == unix.EINTR || err == unix.EAGAIN {
			continue
		}
		if err != nil {
			return written, err
		}
		written += n
	}
	return written, nil
}
