package main

import (
	"encoding/binary"
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// reseed credits bytes to the kernel's random pool and makes its generator start again from it.
// https://man7.org/linux/man-pages/man4/random.4.html
func reseed(bytes []byte) error {
	file, err := os.OpenFile("/dev/urandom", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	// struct rand_pool_info: entropy in bits, size in bytes, the bytes.
	info := make([]byte, 8+len(bytes))
	binary.NativeEndian.PutUint32(info[0:], uint32(len(bytes)*8))
	binary.NativeEndian.PutUint32(info[4:], uint32(len(bytes)))
	copy(info[8:], bytes)
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, file.Fd(), unix.RNDADDENTROPY, uintptr(unsafe.Pointer(&info[0])))
	runtime.KeepAlive(info)
	if errno != 0 {
		return fmt.Errorf("RNDADDENTROPY: %w", errno)
	}
	if _, _, errno = unix.Syscall(unix.SYS_IOCTL, file.Fd(), unix.RNDRESEEDCRNG, 0); errno != 0 {
		return fmt.Errorf("RNDRESEEDCRNG: %w", errno)
	}
	return nil
}
