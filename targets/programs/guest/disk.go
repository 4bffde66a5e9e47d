package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// diskParameter is the kernel parameter that names the disk.
const diskParameter = "archproof.disk="

// The temporary mount point of the disk, before it becomes the root.
const diskFolder = "/disk"

// enterDisk makes the file system of a disk the root, read-only, if the kernel's command line names a disk.
//
// It does not use chroot: a container runtime calls pivot_root, which the kernel refuses below the initial file system.
// Existing mounts are moved along. Modules have to be loaded before, because their files stay behind.
func enterDisk() error {
	device, err := diskDevice()
	if err != nil || device == "" {
		return err
	}
	if err := os.MkdirAll(diskFolder, 0o755); err != nil {
		return err
	}
	// noload: the file system has no journal, and the disk is read-only.
	if err := unix.Mount(device, diskFolder, "ext4", unix.MS_RDONLY, "noload"); err != nil {
		return fmt.Errorf("mount %s: %w", device, err)
	}
	for _, folder := range []string{"/dev", "/proc", "/sys", "/tmp", "/run"} {
		if err := unix.Mount(folder, diskFolder+folder, "", unix.MS_MOVE, ""); err != nil {
			return fmt.Errorf("move %s onto the disk: %w", folder, err)
		}
	}
	if err := unix.Chdir(diskFolder); err != nil {
		return err
	}
	if err := unix.Mount(".", "/", "", unix.MS_MOVE, ""); err != nil {
		return fmt.Errorf("move the disk to /: %w", err)
	}
	if err := unix.Chroot("."); err != nil {
		return err
	}
	return unix.Chdir("/")
}

// diskDevice waits for the disk's device; empty without a disk.
func diskDevice() (string, error) {
	line, err := os.ReadFile("/proc/cmdline")
	if err != nil {
		return "", err
	}
	for _, word := range strings.Fields(string(line)) {
		name, found := strings.CutPrefix(word, diskParameter)
		if !found {
			continue
		}
		device := "/dev/" + name
		for begin := time.Now(); time.Since(begin) < deviceWait; time.Sleep(5 * time.Millisecond) {
			if _, err := os.Stat(device); err == nil {
				return device, nil
			}
		}
		return "", fmt.Errorf("no disk %s appeared within %v", device, deviceWait)
	}
	return "", nil
}
