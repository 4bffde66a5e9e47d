package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// follow passes the words of a file to tell, and again whenever the file is replaced. The first word is a token that is
// printed to the log, so that the writer of the file knows from when on the content applies.
func follow(file string, tell func(words []string) error, failed chan<- error) error {
	// Watch before the first read, so that no replacement is missed.
	notes, err := syscall.InotifyInit1(syscall.IN_CLOEXEC)
	if err != nil {
		return fmt.Errorf("inotify: %w", err)
	}
	const changes = syscall.IN_MOVED_TO | syscall.IN_CLOSE_WRITE
	if _, err := syscall.InotifyAddWatch(notes, filepath.Dir(file), changes); err != nil {
		return fmt.Errorf("inotify of %s: %w", filepath.Dir(file), err)
	}
	look := func() error {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if err := tell(strings.Fields(string(text))); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		return nil
	}
	if err := look(); err != nil {
		return err
	}
	go func() {
		note := make([]byte, 4096)
		for {
			if _, err := syscall.Read(notes, note); err != nil && err != syscall.EINTR {
				failed <- fmt.Errorf("inotify: %w", err)
				return
			}
			if err := look(); err != nil {
				failed <- err
				return
			}
		}
	}()
	return nil
}
